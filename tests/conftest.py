"""Shared by all tests.

A test that needs a program this machine lacks is skipped through `needs`, which names it. CI sets
HEKLA_NO_SKIPS, which turns every skip into a failure and makes Hypothesis draw the same cases in
every run.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

IN_CI = bool(os.environ.get("HEKLA_NO_SKIPS"))

# Ignored signals are inherited: nohup ignores SIGHUP, and `&` in a shell script the other two.
# Programs under test would then not end as on a terminal.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(
            _number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL
        )

# No deadline: machines are shared and noisy. Properties are checked on new cases every time, except
# in CI, where only the change under test may change the result.
settings.register_profile(
    "hekla", deadline=None, derandomize=IN_CI, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hekla")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    if report.skipped and IN_CI and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"no test may be skipped in CI: {report.longrepr}"
