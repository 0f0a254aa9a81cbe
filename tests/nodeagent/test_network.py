"""Which addresses the pods of a cluster get, beside those of others on the same machine."""

from __future__ import annotations

from pathlib import Path

from hekla.nodeagent.network import OCTETS, BridgeNetwork, fingerprint

HEADER = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
PLACE = Path("/var/lib/hekla")
MARK, PREFERRED = fingerprint(PLACE)


def routes(*ways: tuple[str, int]) -> str:
    """As Linux tells them: a device, and the first bytes of the network, last byte first."""
    rows = (f"{name}\t0000{octet:02X}0A\t00000000\t0001\t0\t0\t0\t0000FFFF" for name, octet in ways)
    return HEADER + "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\n" + "\n".join(rows)


def subnet(*ways: tuple[str, int]) -> int:
    """The second byte of the addresses of a cluster that is set up where there are these ways."""
    said: list[str] = []

    def execute(command: list[str], given: str) -> str:
        said.append(given)
        return ""

    network = BridgeNetwork(PLACE, execute, lambda: routes(*ways))
    network.set_up()
    octet = network.first[1]
    assert f"addr add 10.{octet}.0.1/16 dev hekla-{MARK}" in said[0]
    return octet


def test_a_cluster_has_the_addresses_that_its_directory_stands_for() -> None:
    assert subnet(("hekla-other", PREFERRED - 1)) == PREFERRED


def test_addresses_that_another_cluster_has_are_left_to_it() -> None:
    taken = PREFERRED
    free = OCTETS[(OCTETS.index(taken) + 1) % len(OCTETS)]
    assert subnet(("hekla-other", taken)) == free


def test_a_cluster_that_comes_back_keeps_its_addresses() -> None:
    assert subnet((f"hekla-{MARK}", 99), ("hekla-other", PREFERRED)) == 99


def test_on_a_machine_where_all_are_taken_it_tries_its_own() -> None:
    assert subnet(*(("tun0", octet) for octet in OCTETS)) == PREFERRED
