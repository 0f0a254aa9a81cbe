"""Which directories of the machine a container's root file system replaces."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hekla.nodeagent.container_init.root import Root

ORDINARY_USER = 65534


def as_ordinary_user(check: Callable[[], bool]) -> bool:
    """Return the answer of a check in a process without root's rights."""
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setresuid(ORDINARY_USER, ORDINARY_USER, ORDINARY_USER)
        os._exit(int(check()))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def is_closed(directory: Path, *, foreign: bool) -> bool:
    root = object.__new__(Root)
    root._is_foreign = foreign
    opened = os.open(directory, os.O_PATH)
    try:
        return as_ordinary_user(lambda: root._is_closed(opened))
    finally:
        os.close(opened)


def test_directory_that_an_ordinary_user_may_not_pass_is_replaced(tmp_path: Path) -> None:
    """As /root, below which the ssh plugin mounts its keys."""
    (tmp_path / "closed").mkdir(mode=0o000)
    (tmp_path / "open").mkdir(mode=0o755)
    for foreign in (False, True):
        assert is_closed(tmp_path / "closed", foreign=foreign)
        assert not is_closed(tmp_path / "open", foreign=foreign)


def test_own_private_directory_is_replaced_only_for_users_of_a_namespace(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(own, ORDINARY_USER, ORDINARY_USER)
    assert not is_closed(own, foreign=False)
    assert is_closed(own, foreign=True)
