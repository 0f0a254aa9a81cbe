"""Prometheus, built as `tools.kube` builds its programs, with targets given by a test.

`python -m tools.peers.prometheus` builds it, which takes some minutes once. Service discovery and
the web pages are excluded; the tests use PromQL.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.kube.gobuild import Part, ensure
from tools.kube.processes import Processes, free_port

_MODULE = "github.com/prometheus/prometheus"
PROMETHEUS = Part(
    "prometheus",
    Path(__file__).parent / "prometheus",
    _MODULE,
    f"{_MODULE}/cmd/prometheus",
    tags="remove_all_sd",
)


@contextmanager
def running(directory: Path, targets: Mapping[str, str]) -> Iterator[str]:
    """Run Prometheus on these targets (host:port/path) by `instance`; yield its address."""
    jobs = [
        {
            "job_name": instance,
            "metrics_path": f"/{target.partition('/')[2]}",
            "static_configs": [
                {"targets": [target.partition("/")[0]], "labels": {"instance": instance}}
            ],
        }
        for instance, target in targets.items()
    ]
    conf = directory / "prometheus.yml"
    settings = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    conf.write_text(json.dumps({"global": settings, "scrape_configs": jobs}))
    address = f"127.0.0.1:{free_port()}"
    processes = Processes(directory)
    processes.start(
        PROMETHEUS.name,
        [
            ensure(PROMETHEUS), f"--config.file={conf}", f"--web.listen-address={address}",
            f"--storage.tsdb.path={directory / 'data'}",
        ],
    )  # fmt: skip
    try:
        processes.wait_for(PROMETHEUS.name, lambda: _is_ready(f"http://{address}/-/ready"))
        yield f"http://{address}"
    finally:
        processes.stop_all()


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


if __name__ == "__main__":
    print(ensure(PROMETHEUS))
