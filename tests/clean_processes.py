"""Child processes of tests that inherit no locks.

Threads of embedded servers, which other tests in this process use, hold locks such as those of
SQLite. After a plain fork nobody releases the child's copy of such a lock, and the child waits for
ever. Here a server without threads forks the children. What they run is a function of a module.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from typing import Any

LIMIT_S = 300.0
_CONTEXT = multiprocessing.get_context("forkserver")
# Imported once, instead of by each child.
_CONTEXT.set_forkserver_preload(["tests.images.test_store_crashes"])


def start(work: Callable[..., None], *arguments: Any) -> ForkServerProcess:
    """Start a function in a child."""
    child = _CONTEXT.Process(target=work, args=arguments)
    child.start()
    return child


def exit_code(child: ForkServerProcess) -> int:
    """Wait for a child; return its exit code: 1 after an exception, -9 if it was killed."""
    child.join(LIMIT_S)
    if child.exitcode is None:
        child.kill()
        raise TimeoutError(f"a child goes on after {LIMIT_S:.0f} s")
    return child.exitcode
