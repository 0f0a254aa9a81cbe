"""`.venv/fuzz/bin/python -m tools.fuzz.schema [--examples N]`: fuzz the API from its OpenAPI
documents.

schemathesis reads the documents that the server publishes, one for each group and version, and
sends valid and invalid requests. No response may be a server error.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from hekla.kube import kubeconfig
from hekla.kube.sync_client import SyncClient

GROUPS = (
    "api/v1",
    "apis/apps/v1",
    "apis/batch/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/batch.volcano.sh/v1alpha1",
    "apis/scheduling.volcano.sh/v1beta1",
    "apis/bus.volcano.sh/v1alpha1",
    "apis/flow.volcano.sh/v1alpha1",
)
ANSWER_LIMIT_S = 20
_COUNT = re.compile(r"([\d,]+) generated")


def run(group: str, where: Path, examples: int, seed: int) -> int:
    """Return the number of requests of one document; raise SystemExit with a finding."""
    config = kubeconfig.load(where / "kubeconfig")
    (_, value), *_ = config.credentials.current().headers
    words = [
        str(Path(sys.executable).with_name("st")),
        "run",
        f"{config.server}/openapi/v3/{group}",
    ]
    words += ["--header", f"Authorization: {value}", "--tls-verify", str(where / "pki" / "ca.crt")]
    words += ["--checks", "not_a_server_error", "--phases", "fuzzing", "--no-color", "--no-shrink"]
    words += ["--max-examples", str(examples), "--seed", str(seed), "--warnings", "off"]
    words += ["--request-timeout", str(ANSWER_LIMIT_S), "--suppress-health-check", "all"]
    root = str(Path(__file__).parents[2])
    hooks = {**os.environ, "PYTHONPATH": root, "SCHEMATHESIS_HOOKS": "tools.fuzz.schema_hooks"}
    done = subprocess.run(words, env=hooks, capture_output=True, text=True, cwd=where, check=False)
    found = _COUNT.search(done.stdout)
    if done.returncode or found is None:
        raise SystemExit(f"{group}:\n{done.stdout[-6000:]}\n{done.stderr[-2000:]}")
    return int(found[1].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--examples", type=int, default=20, help="for each operation")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hekla-fuzz-") as directory:
        where = Path(directory)
        command = [sys.executable, "-m", "hekla.apiserver", "--data-dir", directory]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        assert server.stdout.readline(), "the server did not start"
        try:
            total = 0
            for group in given.groups or GROUPS:
                count = run(group, where, given.examples, given.seed)
                total += count
                print(f"{group}: {count} requests", flush=True)
            with SyncClient(kubeconfig.load(where / "kubeconfig")) as client:
                client.request("GET", "/readyz")
        finally:
            server.terminate()
            server.wait()
    print(f"schema: {total} requests, no mistake of the server's")


if __name__ == "__main__":
    main()
