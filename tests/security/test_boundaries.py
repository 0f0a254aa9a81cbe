"""What a machine cannot keep apart is said."""

from __future__ import annotations

from dataclasses import replace

from hekla.nodeagent.boundaries import Machine, boundary_gaps

COMPLETE = Machine("namespace", "", True, "", 2, True, True, "")


def test_machine_that_keeps_users_apart_has_no_gap() -> None:
    assert boundary_gaps(COMPLETE) == ()


def test_each_missing_part_is_one_gap_with_reason_and_remedy() -> None:
    parts = {
        "one user of this machine": replace(COMPLETE, pod_user="owner", user_reason="no root"),
        "all files of this user": replace(COMPLETE, namespaces=False, namespaces_reason="EPERM"),
        "all memory": replace(COMPLETE, cgroups=0),
        "every system call": replace(COMPLETE, seccomp=False),
        "share the network": replace(COMPLETE, pod_network=False, network_reason="no ip"),
    }
    for words, machine in parts.items():
        (gap,) = boundary_gaps(machine)
        assert words in gap.what
        assert gap.reason
        assert gap.remedy
