"""The subnets of clusters on one machine."""

from __future__ import annotations

from pathlib import Path

from hekla.nodeagent.network import OCTETS, BridgeNetwork, fingerprint

HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
PLACE = Path("/var/lib/hekla")
MARK, PREFERRED = fingerprint(PLACE)


def routes(*ways: tuple[str, int]) -> str:
    """Return routes as Linux lists them: a device, and the network in reverse byte order."""
    rows = (f"{name}\t0000{octet:02X}0A\t00000000\t0001\t0\t0\t0\t0000FFFF" for name, octet in ways)
    return HEADER + "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\n" + "\n".join(rows)


def subnet(*ways: tuple[str, int]) -> int:
    """Return the second octet of a cluster that is set up beside these routes."""
    said: list[str] = []

    def execute(command: list[str], given: str) -> str:
        said.append(given)
        return ""

    network = BridgeNetwork(PLACE, execute, lambda: routes(*ways))
    network.set_up()
    octet = network.first[1]
    assert f"addr add 10.{octet}.0.1/16 dev hekla-{MARK}" in said[0]
    return octet


def test_subnet_is_derived_from_the_directory() -> None:
    assert subnet(("hekla-other", PREFERRED - 1)) == PREFERRED


def test_subnet_in_use_by_another_cluster_is_skipped() -> None:
    taken = PREFERRED
    free = OCTETS[(OCTETS.index(taken) + 1) % len(OCTETS)]
    assert subnet(("hekla-other", taken)) == free


def test_existing_bridge_keeps_its_subnet() -> None:
    assert subnet((f"hekla-{MARK}", 99), ("hekla-other", PREFERRED)) == 99


def test_derived_subnet_is_used_if_all_are_in_use() -> None:
    assert subnet(*(("tun0", octet) for octet in OCTETS)) == PREFERRED
