"""Rules of volume claim specs: of claims, of templates and in pods."""

from __future__ import annotations

from typing import Final

from hekla.api.rules import amounts, names
from hekla.api.rules.fields import FieldErrors, forbidden, one_of, required
from hekla.api.rules.placement import label_selector
from hekla.units.objects import Object

ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def claim_spec(path: str, spec: Object) -> FieldErrors:
    if not spec.get("accessModes"):
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from access_modes(path, spec)
    requests = (spec.get("resources") or {}).get("requests")
    yield from amounts.claim_storage(f"{path}.resources", requests)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        yield from names.checked(f"{path}.storageClassName", name, names.dns_subdomain)
    if spec.get("volumeMode"):
        yield from one_of(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
    yield from label_selector(f"{path}.selector", spec.get("selector"))


def access_modes(path: str, spec: Object) -> FieldErrors:
    modes = spec.get("accessModes") or ()
    for mode in modes:
        yield from one_of(f"{path}.accessModes", mode, ACCESS_MODES)
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        yield forbidden(f"{path}.accessModes", "ReadWriteOncePod excludes other access modes")
