"""The lock of a data directory."""

from __future__ import annotations

import fcntl
import time
from pathlib import Path

import pytest

from hekla.kube.data_dir import try_lock


def test_a_server_starts_while_a_command_looks_whether_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    with path.open("w") as looking, path.open() as lock:
        fcntl.flock(looking, fcntl.LOCK_SH)
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            fcntl.flock(looking, fcntl.LOCK_UN)

        monkeypatch.setattr(time, "sleep", pause)
        assert try_lock(lock)
        assert len(pauses) == 1


def test_a_second_server_does_not_get_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    path = tmp_path / "lock"
    with path.open("w") as first, path.open() as second:
        assert try_lock(first)
        assert not try_lock(second)
