"""Cluster IPs of Services: allocated from a range, unique, and free again after deletion.

Nothing on one machine routes to these addresses. They are in the objects because clients, charts
and operators of Kubernetes expect them; pods reach each other by name.

Note: an address is taken when it is assigned, before the Service is stored. If the write then
fails, the address is free again after a minute.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.storage.watch_cache import Event
from hekla.units.clock import Clock
from hekla.units.objects import Object

if TYPE_CHECKING:
    from hekla.apiserver.storage.store import Store

SERVICES: Final = "services"
RANGE: Final = ipaddress.IPv4Network("10.96.0.0/16")
HEADLESS: Final = "None"
_PENDING_S: Final = 60.0
_FIELDS: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")


class ServiceAddresses:
    """Which Service has which address."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._clock = clock
        self._stored: dict[str, str] = {}
        """The key of the Service by address."""
        self._pending: dict[str, tuple[str, float]] = {}
        """The key and the time of expiry by address, of writes that are not committed yet."""
        self._next = 0
        for entry in store.table(SERVICES).entries.values():
            for address in _addresses(msgspec.json.decode(entry.body)):
                self._stored[address] = entry.key
        store.subscribe(self._changed)

    def _changed(self, resource: str, event: Event) -> None:
        if resource != SERVICES:
            return
        key = event.entry.key
        if event.previous is not None:
            for address in _addresses(msgspec.json.decode(event.previous.body)):
                if self._stored.get(address) == key:
                    del self._stored[address]
        if not event.removed:
            for address in _addresses(msgspec.json.decode(event.entry.body)):
                self._stored[address] = key
                self._pending.pop(address, None)

    def assign(self, obj: Object, old: Object | None, *, dry_run: bool) -> None:
        """Set the addresses and families of a Service; refuse an address that it cannot have."""
        spec = obj.get("spec")
        if spec is None:
            return
        before = (old or {}).get("spec") or {}
        if spec.get("type") == "ExternalName":
            if before.get("type") not in (None, "ExternalName"):
                _release(spec, before)
            return
        if before.get("type") != "ExternalName":
            for name in _FIELDS:  # they do not change, so a client may omit them
                if not spec.get(name) and name in before:
                    spec[name] = before[name]
        self._set_address(obj, spec, before, dry_run=dry_run)

    def _set_address(self, obj: Object, spec: Object, before: Object, *, dry_run: bool) -> None:
        address = spec.get("clusterIP") or ""
        if (spec.get("clusterIPs") or [address])[0] != address:
            return  # refused by the rules
        _check_families(obj, spec, is_headless=address == HEADLESS)
        if address == HEADLESS:
            _set_families(spec, dual=not spec.get("selector"))
        elif address and address == before.get("clusterIP"):
            _set_families(spec)
        else:
            key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            address = self._taken(obj, key, address) if address else self._free(obj, key)
            if not dry_run:
                self._pending[address] = key, self._clock.now() + _PENDING_S
            _set_families(spec)
        spec["clusterIP"] = address
        spec["clusterIPs"] = spec.get("clusterIPs") or [address]

    def _taken(self, obj: Object, key: str, address: str) -> str:
        """Return the address that a client asks for."""
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return address  # refused by the rules
        if parsed not in RANGE or parsed in (RANGE.network_address, RANGE.broadcast_address):
            raise _invalid(obj, [address], f"{address} is not in the range of services, {RANGE}")
        owner = self._owner(address)
        if owner not in (None, key):
            raise _invalid(obj, [address], f"{address} is the address of service {owner}")
        return address

    def _free(self, obj: Object, key: str) -> str:
        """Return the next free address. The first is that of the service `kubernetes`."""
        if key == "default/kubernetes":
            return str(RANGE[1])
        count = RANGE.num_addresses - 3
        for _ in range(count):
            address = str(RANGE[2 + self._next])
            self._next = (self._next + 1) % count
            if self._owner(address) is None:
                return address
        raise _invalid(obj, [], f"all {count} addresses of {RANGE} are taken; delete a service")

    def _owner(self, address: str) -> str | None:
        found = self._stored.get(address)
        if found is None and address in self._pending:
            key, expires = self._pending[address]
            if expires > self._clock.now():
                return key
            del self._pending[address]
        return found


def _addresses(obj: Object) -> list[str]:
    spec = obj.get("spec") or {}
    found = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [address for address in found if address not in (None, "", HEADLESS)]


def _release(spec: Object, before: Object) -> None:
    """Remove what belongs to an address from a Service that becomes an external name."""
    for name in _FIELDS:
        if spec.get(name) == before.get(name):
            spec.pop(name, None)


def _check_families(obj: Object, spec: Object, *, is_headless: bool) -> None:
    """Refuse IPv6: the range has none. A headless service without selector has both families."""
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    if is_headless and not spec.get("selector"):
        return
    if policy == "RequireDualStack":
        why = "services have IPv4 addresses only; use SingleStack or PreferDualStack"
        raise _invalid(obj, policy, why, "spec.ipFamilyPolicy")
    for index, family in enumerate(families):
        if family == "IPv6" and (policy or len(families) == 1):
            why = "services have IPv4 addresses only; use IPv4"
            raise _invalid(obj, family, why, f"spec.ipFamilies[{index}]")


def _set_families(spec: Object, *, dual: bool = False) -> None:
    if not spec.get("ipFamilyPolicy"):
        spec["ipFamilyPolicy"] = "RequireDualStack" if dual else "SingleStack"
    if not spec.get("ipFamilies"):
        is_dual = dual and spec["ipFamilyPolicy"] != "SingleStack"
        spec["ipFamilies"] = ["IPv4", "IPv6"] if is_dual else ["IPv4"]


def _invalid(
    obj: Object, value: Any, why: str, field: str = "spec.clusterIPs"
) -> errors.StatusError:
    shown = msgspec.json.encode(value).decode()
    causes = [
        {
            "reason": "FieldValueInvalid",
            "message": f"Invalid value: {shown}: {why}",
            "field": field,
        }
    ]
    return errors.invalid("", "Service", obj["metadata"].get("name", ""), causes)
