"""Real frameworks as real processes: every example of examples/frameworks gives its result."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import frameworks

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
HEKLA = [sys.executable, "-m", "hekla.cli.main"]

pytestmark = pytest.mark.frameworks

# Expected output of a pod.
WANT = {
    "pytorch-ddp": ["rank 0 of 3: loss 0.000", "rank 2 of 3: loss 0.000"],
    "parameter-server": ["parameter-server-ps-0 | weights 2.0", "worker 2 of 3 done"],
    "dask": ["dask-client-0 | sum of squares 328350"],
    "ray": ["ray-driver-0 | sum of squares 506"],
    "spark": ["spark-driver-0 | primes below 10000: 1229"],
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip (iproute2) for networks of pods")
    config = tmp_path_factory.mktemp("config")
    (config / "hekla").mkdir()
    try:
        (config / "hekla" / "images.toml").write_text(frameworks.images())
    except frameworks.Missing as missing:
        pytest.skip(str(missing))
    where = str(tmp_path_factory.mktemp("state"))
    environment = {**os.environ, "XDG_CONFIG_HOME": str(config), "HEKLA_DATA": where}
    run(environment, "up", "--port", "0", "--detach", "--pod-network", "bridge")
    yield environment
    run(environment, "down")


def run(environment: dict[str, str], verb: str, *words: str) -> str:
    done = subprocess.run(
        [*HEKLA, verb, "--data-dir", environment["HEKLA_DATA"], *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", sorted(WANT))
def test_a_framework_connects_its_pods_and_computes(name: str, cluster: dict[str, str]) -> None:
    if name == "spark" and shutil.which("java") is None:
        pytest.skip("needs Java 17 for Spark")
    shown = run(cluster, "run", str(EXAMPLES / f"{name}.yaml"))
    for line in WANT[name]:
        assert line in shown, shown[-8000:]
    assert f"job {name}: Completed" in shown


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == WANT.keys()
