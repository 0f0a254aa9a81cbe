"""Install the Python clients that tests/clients runs: `python -m tools.clients`.

They have a separate environment, so that they do not constrain hekla's dependencies. It is created
once for each version of requirements/clients.txt.
"""

from __future__ import annotations

import re
from pathlib import Path

from tools.frameworks import environment

REQUIREMENTS = Path(__file__).parents[1] / "requirements" / "clients.txt"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def python_clients() -> Path:
    """Return the environment with the clients."""
    return environment(REQUIREMENTS)


def versions(requirements: Path = REQUIREMENTS) -> dict[str, str]:
    """Return the pinned version of each package in a requirements file."""
    return dict(_PIN.findall(requirements.read_text()))


if __name__ == "__main__":
    print(python_clients())
