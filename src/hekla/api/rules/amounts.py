"""Rules of quantities: resource lists of containers, claims, quotas and limit ranges."""

from __future__ import annotations

from typing import Any, Final

from hekla.api import wellknown
from hekla.api.rules.fields import FieldErrors, forbidden, invalid, required
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, QuantityError
from hekla.units.selectors import label_key_problem

NATIVE: Final = (wellknown.CPU, wellknown.MEMORY, wellknown.EPHEMERAL_STORAGE)
# Names in Kubernetes' own domains and their subdomains are native.
_KUBERNETES_DOMAIN: Final = "kubernetes.io/"


def is_extended(resource: str) -> bool:
    """Return whether a resource is extended, such as a device: whole units, never overcommitted."""
    return (
        "/" in resource
        and _KUBERNETES_DOMAIN not in resource
        and not resource.startswith(wellknown.REQUESTS_PREFIX)
    )


def parsed(field: str, amount: Any) -> tuple[Quantity | None, list[Any]]:
    """Return the quantity, or an error if it is invalid."""
    try:
        return Quantity.parse(amount), []
    except QuantityError as error:
        return None, [invalid(field, amount, str(error))]


def non_negative(field: str, amount: Any) -> FieldErrors:
    quantity, errors = parsed(field, amount)
    yield from errors
    if quantity is not None and quantity.nanos < 0:
        yield invalid(field, amount, "must be greater than or equal to 0")


def resource_list(field: str, amounts: Object | None) -> FieldErrors:
    """Check amounts by any resource name: valid and not negative, for quotas and capacities."""
    for resource, amount in (amounts or {}).items():
        if why := label_key_problem(resource):
            yield invalid(f"{field}[{resource}]", resource, why)
        yield from non_negative(f"{field}[{resource}]", amount)


def container_resources(field: str, resources: Object | None) -> FieldErrors:
    """Check names and amounts of a container, and requests within limits."""
    if not resources:
        return
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for section, amounts in (("limits", limits), ("requests", requests)):
        for resource, amount in amounts.items():
            where = f"{field}.{section}[{resource}]"
            yield from _container_resource_name(where, resource)
            yield from non_negative(where, amount)
            if is_extended(resource) and not _is_whole(amount):
                yield invalid(where, amount, "must be a whole number: devices cannot be split")
    for resource, amount in requests.items():
        yield from _within_limit(field, resource, amount, limits)


def _container_resource_name(where: str, resource: str) -> FieldErrors:
    if "/" not in resource and not resource.startswith(wellknown.HUGEPAGES_PREFIX):
        if resource not in NATIVE:
            yield invalid(where, resource, f"must be one of {', '.join(NATIVE)}, or have a domain")
    elif why := label_key_problem(resource):
        yield invalid(where, resource, why)


def _within_limit(field: str, resource: str, amount: Any, limits: Object) -> FieldErrors:
    where = f"{field}.requests"
    must_equal = is_extended(resource) or resource.startswith(wellknown.HUGEPAGES_PREFIX)
    if resource not in limits:
        if must_equal:
            yield required(
                f"{field}.limits", f"{resource} needs a limit: it is never overcommitted"
            )
        return
    try:
        request, limit = Quantity.parse(amount), Quantity.parse(limits[resource])
    except QuantityError:
        return  # reported already
    if must_equal and request != limit:
        yield invalid(where, str(amount), f"must be equal to {resource} limit of {limit}")
    elif request > limit:
        yield invalid(
            where, str(amount), f"must be less than or equal to {resource} limit of {limit}"
        )


def _is_whole(amount: Any) -> bool:
    try:
        return Quantity.parse(amount).nanos % 1_000_000_000 == 0
    except QuantityError:
        return True  # reported already


def claim_storage(field: str, requests: Object | None) -> FieldErrors:
    """Check that a claim requests storage only."""
    amount = (requests or {}).get(wellknown.STORAGE)
    if amount is None:
        yield required(f"{field}[storage]")
        return
    quantity, errors = parsed(f"{field}[storage]", amount)
    yield from errors
    if quantity is not None and quantity.nanos <= 0:
        yield invalid(f"{field}[storage]", amount, "must be greater than 0")
    for resource in requests or ():
        if resource != wellknown.STORAGE:
            yield forbidden(f"{field}[{resource}]", "a claim can only request storage")
