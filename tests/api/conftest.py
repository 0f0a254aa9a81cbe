"""Go modules that some tests compare with; without Go these tests are skipped."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

VOLCANO = "volcano.sh/volcano@v1.14.1"
KUBERNETES = "k8s.io/kubernetes@v1.36.1"


def go_module(module: str) -> Path:
    if shutil.which("go") is None:
        pytest.skip(f"needs Go to fetch {module}")
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"needs Go to fetch {module}; go said: {(done.stderr or done.stdout)[-300:]}")
    return Path(json.loads(done.stdout)["Dir"])


@pytest.fixture(scope="session")
def volcano_module() -> Path:
    return go_module(VOLCANO)


@pytest.fixture(scope="session")
def kubernetes_module() -> Path:
    return go_module(KUBERNETES)
