"""Installs the Python clients that tests/clients runs: `python -m tools.clients`.

They go into an environment of their own, so that none of them decides which versions hekla is
developed with; it is made once for a version of requirements/clients.txt.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.frameworks import environment

REQUIREMENTS = Path(__file__).parents[1] / "requirements" / "clients.txt"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def python_clients() -> Path:
    """The environment with the clients."""
    return environment(REQUIREMENTS)


def versions(requirements: Path = REQUIREMENTS) -> dict[str, str]:
    """The version of each package that a locked file of requirements pins."""
    return dict(_PIN.findall(requirements.read_text()))


if __name__ == "__main__":
    print(python_clients())
