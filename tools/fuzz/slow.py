"""Look for slow inputs: requests whose work grows faster than their size.

    python -m tools.fuzz.slow --size 4000

Each case builds a request of size n. It is sent to an API server in this process with n and 4n, and
the CPU time of the thread that serves is compared. Quadratic work takes 16 times as long.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from hekla.admission import reviews
from hekla.api.volcano.view import View
from hekla.apiserver.server import ApiServer, Config
from hekla.units.objects import Object

GROWTH: Final = 4
EXPONENT: Final = 1.5
"""Work of n log n, noise and caches stay below; quadratic work has 2."""
NOISE_S: Final = 0.03
TRIES: Final = 3

JSON: Final = "application/json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PODS: Final = "/api/v1/namespaces/default/pods"
MAPS: Final = "/api/v1/namespaces/default/configmaps"
SERVICES: Final = "/api/v1/namespaces/default/services"
JOBS: Final = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
FLOWS: Final = "/apis/flow.volcano.sh/v1alpha1/namespaces/default/jobflows"
HYPER_NODES: Final = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
STRICT: Final = "?fieldValidation=Strict"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Any = None
    media: str = JSON


@dataclass(frozen=True)
class Case:
    """Requests of size n: those that prepare, and the measured one."""

    build: Callable[[int], list[Request]]
    most: int = 1_000_000
    """The largest size that the server accepts."""


def meta(name: str, **more: Any) -> Object:
    return {"name": name, **more}


def pod(**spec: Any) -> Object:
    return {"metadata": meta("p"), "spec": {"containers": [{"name": "c", "image": "x"}], **spec}}


def job(tasks: list[Object], **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "c", "image": "x"}]}}
    made = [{"replicas": 1, "template": template, **task} for task in tasks]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": meta("j"),
        "spec": {"tasks": made, "minAvailable": 1, **spec},
    }


def env(n: int, prefix: str = "V") -> list[Object]:
    return [{"name": f"{prefix}{i}", "value": "x"} for i in range(n)]


def containers(n: int, prefix: str = "V") -> list[Object]:
    return [{"name": "c", "image": "x", "env": env(n, prefix)}]


def config_map(n: int, name: str = "m") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta(name),
        "data": {f"k{i}": "v" for i in range(n)},
    }


def text_of_keys(names: list[str]) -> bytes:
    pairs = ",".join(f'"{name}":"v"' for name in names)
    return b'{"metadata":{"name":"m"},"data":{' + pairs.encode() + b"}}"


def tolerations(n: int) -> list[Object]:
    return [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]


def dependent(n: int) -> list[Object]:
    """Return tasks with 50 dependencies each, on the last task, and n in all."""
    last = f"t{max(n // 50, 1)}"
    tasks: list[Object] = [
        {"name": f"t{i}", "dependsOn": {"name": [last] * 50}} for i in range(max(n // 50, 1))
    ]
    return [*tasks, {"name": last}]


def with_pod(body: Object, *after: Request) -> list[Request]:
    return [Request("POST", PODS, body), *after]


def operations(n: int, op: str) -> list[Object]:
    path = "/spec/containers/0/env/0"
    return [{"op": op, "path": path, "value": {"name": f"W{i}", "value": "y"}} for i in range(n)]


_UNIQUE = itertools.count()

CASES: Final[dict[str, Case]] = {
    "duplicate JSON keys": Case(
        lambda n: [Request("POST", MAPS + STRICT, text_of_keys([f"k{i}" for i in range(n)] * 2))]
    ),
    "duplicate YAML keys": Case(
        lambda n: [
            Request(
                "POST",
                MAPS + STRICT,
                (
                    "metadata: {name: m}\ndata:\n" + "".join(f"  k{i}: v\n" for i in range(n)) * 2
                ).encode(),
                "application/yaml",
            )
        ],
        most=10_000,
    ),
    "unknown fields": Case(
        lambda n: [Request("POST", PODS + STRICT, pod(**{f"unknown{i}": 1 for i in range(n)}))]
    ),
    "keys of a config map": Case(lambda n: [Request("POST", MAPS, config_map(n))]),
    "keys of a config map, applied": Case(
        lambda n: [
            Request("PATCH", f"{MAPS}/m?fieldManager=a", config_map(n), APPLY),
            Request("PATCH", f"{MAPS}/m?fieldManager=b&force=true", config_map(n + 1), APPLY),
        ]
    ),
    "keys of a config map, in conflict": Case(
        lambda n: [
            Request("PATCH", f"{MAPS}/m?fieldManager=a", config_map(n), APPLY),
            Request(
                "PATCH",
                f"{MAPS}/m?fieldManager=b",
                {**config_map(n), "data": {f"k{i}": "other" for i in range(n)}},
                APPLY,
            ),
        ]
    ),
    "tolerations, then a label": Case(
        lambda n: with_pod(
            pod(tolerations=tolerations(n)),
            Request("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        )
    ),
    "tolerations, merged": Case(
        lambda n: with_pod(
            pod(tolerations=tolerations(n)),
            Request("PATCH", f"{PODS}/p", {"spec": {"tolerations": tolerations(n)}}, STRATEGIC),
        )
    ),
    "variables": Case(lambda n: with_pod(pod(containers=containers(n)))),
    "variables, strategic merge": Case(
        lambda n: with_pod(
            pod(containers=containers(n)),
            Request("PATCH", f"{PODS}/p", {"spec": {"containers": containers(n, "W")}}, STRATEGIC),
        )
    ),
    "variables, deleted by directive": Case(
        lambda n: with_pod(
            pod(containers=containers(n)),
            Request(
                "PATCH",
                f"{PODS}/p",
                {
                    "spec": {
                        "containers": [
                            {
                                "name": "c",
                                "env": [{"name": f"V{i}", "$patch": "delete"} for i in range(n)],
                            }
                        ]
                    }
                },
                STRATEGIC,
            ),
        )
    ),
    "variables, ordered by directive": Case(
        lambda n: with_pod(
            pod(containers=containers(n)),
            Request(
                "PATCH",
                f"{PODS}/p",
                {
                    "spec": {
                        "containers": [
                            {
                                "name": "c",
                                "$setElementOrder/env": [{"name": f"V{i}"} for i in range(n)],
                                "env": env(n),
                            }
                        ]
                    }
                },
                STRATEGIC,
            ),
        )
    ),
    "finalizers, deleted by directive": Case(
        lambda n: [
            Request(
                "POST",
                MAPS,
                {"metadata": meta("m", finalizers=[f"example.com/f{i}" for i in range(n)])},
            ),
            Request(
                "PATCH",
                f"{MAPS}/m",
                {
                    "metadata": {
                        "$deleteFromPrimitiveList/finalizers": [
                            f"example.com/f{i}" for i in range(n)
                        ]
                    }
                },
                STRATEGIC,
            ),
        ]
    ),
    "variables, applied by two managers": Case(
        lambda n: [
            Request(
                "PATCH",
                f"{PODS}/p?fieldManager={manager}&force=true",
                {"apiVersion": "v1", "kind": "Pod", **pod(containers=containers(n))},
                APPLY,
            )
            for manager in "ab"
        ]
    ),
    "operations that add": Case(
        lambda n: with_pod(
            pod(containers=containers(1)),
            Request("PATCH", f"{PODS}/p", operations(n, "add"), JSON_PATCH),
        ),
        most=10_000,
    ),
    "operations that replace": Case(
        lambda n: with_pod(
            pod(containers=containers(n)),
            Request("PATCH", f"{PODS}/p", operations(n, "replace"), JSON_PATCH),
        ),
        most=10_000,
    ),
    "labels": Case(
        lambda n: [
            Request("POST", MAPS, {"metadata": meta("m", labels={f"k{i}": "v" for i in range(n)})})
        ]
    ),
    "owner references": Case(
        lambda n: [
            Request(
                "POST",
                MAPS,
                {
                    "metadata": meta(
                        "m",
                        ownerReferences=[
                            {"apiVersion": "v1", "kind": "Pod", "name": f"p{i}", "uid": f"u{i}"}
                            for i in range(n)
                        ],
                    )
                },
            )
        ]
    ),
    "ports of a service": Case(
        lambda n: [
            Request(
                "POST",
                SERVICES,
                {
                    "metadata": meta("s"),
                    "spec": {"ports": [{"name": f"p{i}", "port": 1 + i} for i in range(n)]},
                },
            )
        ],
        most=60_000,
    ),
    "volumes of a pod": Case(
        lambda n: with_pod(
            pod(
                volumes=[{"name": f"v{i}", "emptyDir": {}} for i in range(n)],
                containers=[
                    {
                        "name": "c",
                        "image": "x",
                        "volumeMounts": [
                            {"name": f"v{i}", "mountPath": f"/m{i}"} for i in range(n)
                        ],
                    }
                ],
            )
        )
    ),
    "containers of a pod": Case(
        lambda n: with_pod(
            pod(containers=[{"name": f"c{i}", "image": "x"} for i in range(n)]),
            Request("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, MERGE),
        ),
        most=8_000,
    ),
    "affinity terms": Case(
        lambda n: with_pod(
            pod(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": f"k{i}", "operator": "Exists"} for i in range(n)
                                    ]
                                }
                            ]
                        }
                    }
                }
            )
        )
    ),
    "values of a selector": Case(
        lambda n: [
            Request("GET", f"{PODS}?labelSelector=a%20in%20({','.join(f'v{i}' for i in range(n))})")
        ],
        most=8_000,
    ),
    "terms of a selector": Case(
        lambda n: [Request("GET", f"{PODS}?labelSelector={','.join(f'k{i}=v' for i in range(n))}")],
        most=6_000,
    ),
    "dependencies of tasks": Case(
        lambda n: [Request("POST", JOBS, job(dependent(n)))], most=40_000
    ),
    "tasks": Case(
        lambda n: [Request("POST", JOBS, job([{"name": f"t{i}"} for i in range(n)]))], most=1_000
    ),
    "policies of a job": Case(
        lambda n: [
            Request(
                "POST",
                JOBS,
                job(
                    [{"name": "t"}],
                    policies=[{"exitCode": i + 1, "action": "AbortJob"} for i in range(n)],
                ),
            )
        ]
    ),
    "replicas with listed hosts": Case(
        lambda n: [
            Request(
                "POST", JOBS, job([{"name": "t", "replicas": n}], plugins={"svc": [], "ssh": []})
            )
        ]
    ),
    "targets of flows": Case(
        lambda n: [
            Request(
                "POST",
                FLOWS,
                {
                    "apiVersion": "flow.volcano.sh/v1alpha1",
                    "kind": "JobFlow",
                    "metadata": meta("f"),
                    "spec": {
                        "flows": [
                            {"name": f"f{i}", "dependsOn": {"targets": ["f0"] * (n // 50)}}
                            for i in range(50)
                        ]
                    },
                },
            )
        ]
    ),
    "members of a HyperNode": Case(
        lambda n: [
            Request(
                "POST",
                HYPER_NODES,
                {
                    "apiVersion": "topology.volcano.sh/v1alpha1",
                    "kind": "HyperNode",
                    "metadata": meta("h"),
                    "spec": {
                        "tier": 1,
                        "members": [
                            {
                                "type": "Node",
                                # Patterns that no earlier try has brought into a cache.
                                "selector": {"regexMatch": {"pattern": f"(a|a)*{next(_UNIQUE)}$"}},
                            }
                            for _ in range(n)
                        ],
                    },
                },
            )
        ],
        most=4_000,
    ),
}


@dataclass
class Probe:
    """An API server in this process, and a client of it in the same thread."""

    session: aiohttp.ClientSession
    statuses: dict[str, int] = field(default_factory=dict)

    async def cost(self, case: Case, n: int) -> float:
        """Return the CPU seconds of the measured request: the least of some tries."""
        costs = []
        for _ in range(TRIES):
            requests = case.build(n)
            for path in (PODS, MAPS, SERVICES, JOBS, FLOWS, HYPER_NODES):
                await self._clean(path)
            for request in requests[:-1]:
                await self.send(request)
            gc.disable()  # only large requests would have a collection of all objects
            try:
                before = time.thread_time()
                self.status = await self.send(requests[-1])
                costs.append(time.thread_time() - before)
            finally:
                gc.enable()
        return min(costs)

    async def send(self, request: Request) -> int:
        body = request.body
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {"Content-Type": request.media}
        async with self.session.request(
            request.method, request.path, data=data, headers=headers
        ) as response:
            await response.read()
            if response.status >= 500 and response.status != 504:
                raise AssertionError(f"{request.method} {request.path}: {response.status}")
            return response.status

    async def _clean(self, path: str) -> None:
        async with self.session.get(path) as response:
            items = (await response.json()).get("items") or []
        for item in items:
            name = item["metadata"]["name"]
            if item["metadata"].get("finalizers"):
                await self.send(
                    Request("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, MERGE)
                )
            await self.send(Request("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0}))


@asynccontextmanager
async def probe() -> AsyncIterator[Probe]:
    with tempfile.TemporaryDirectory(prefix="hekla-slow-") as directory:
        data = Path(directory) / "data"
        async with ApiServer(Config(data_dir=data)) as server:
            context = ssl.create_default_context(cadata=(data / "pki" / "ca.crt").read_text())
            token = (data / "pki" / "admin.token").read_text().strip()
            async with aiohttp.ClientSession(
                server.address,
                connector=aiohttp.TCPConnector(ssl=context),
                headers={"Authorization": f"Bearer {token}"},
            ) as session:
                yield Probe(session)


async def growth(run: Probe, name: str, size: int) -> tuple[float, float, float]:
    """Return the costs of n and 4n, and the exponent of the growth."""
    import math

    case = CASES[name]
    small = min(size, case.most // GROWTH)
    first, second = await run.cost(case, small), await run.cost(case, small * GROWTH)
    if second < NOISE_S:
        return first, second, 0.0
    return first, second, math.log(second / max(first, 1e-6), GROWTH)


def review_cost(view: View, n: int) -> float:
    """Return the CPU seconds of a webhook's review of a job with n dependencies."""
    request = {"uid": "u", "operation": "CREATE", "object": job(dependent(n))}
    costs = []
    for _ in range(TRIES):
        before = time.thread_time()
        reviews.validate(json.loads(json.dumps(request)), view)
        costs.append(time.thread_time() - before)
    return min(costs)


async def main(size: int) -> int:
    slow = 0
    async with probe() as run:
        for name in CASES:
            first, second, exponent = await growth(run, name, size)
            verdict = "SLOW" if exponent > EXPONENT else "ok"
            slow += verdict == "SLOW"
            print(
                f"{verdict:5} n^{exponent:.2f} {first * 1e3:8.1f} ms {second * 1e3:8.1f} ms "
                f"{run.status} {name}",
                flush=True,
            )
    return 1 if slow else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", type=int, default=4_000)
    sys.exit(asyncio.run(main(parser.parse_args().size)))
