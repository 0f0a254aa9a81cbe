"""The IP addresses of pods on this machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

SLOTS = 65_000
"""The number of addresses: a 16-bit network without its ends."""


@dataclass
class PodAddresses:
    """Allocates an address to each pod.

    The addresses are those of the pod network, or of 127/8, which needs no set-up. The name of a
    pod determines its address, so that the address is known before the pod exists; a pod that
    replaces another gets the same address, unless both exist at once.
    """

    first: tuple[int, int, int, int]
    allocated: dict[str, str] = field(default_factory=dict)

    def expected(self, name: str) -> str:
        """Return the address of a pod `namespace/name` if it is free."""
        return self._address(_slot(name))

    def allocate(self, uid: str, name: str) -> str:
        """Return the address of a pod, the next free one if the expected one is in use."""
        if uid in self.allocated:
            return self.allocated[uid]
        used = set(self.allocated.values())
        slot = _slot(name)
        while (address := self._address(slot)) in used:
            slot = (slot + 1) % SLOTS
        self.allocated[uid] = address
        return address

    def release(self, uid: str) -> None:
        """Release the address of a pod."""
        self.allocated.pop(uid, None)

    def _address(self, slot: int) -> str:
        number = int.from_bytes(bytes(self.first), "big") + slot
        return ".".join(map(str, number.to_bytes(4, "big")))


def _slot(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % SLOTS
