"""What a tenant tries through the API. Each attack says what must not happen.

An attack returns the answers it got. The run searches all of them for secrets of others; an attack
whose success is not a leak is `refused` only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from tools.attack.http import Answer, User

RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
BATCH: Final = "/apis/batch.volcano.sh/v1alpha1"
SCHEDULING: Final = "/apis/scheduling.volcano.sh/v1beta1"
BUS: Final = "/apis/bus.volcano.sh/v1alpha1"


@dataclass(frozen=True, slots=True)
class Target:
    """What is attacked."""

    victim: str
    """Namespace, account and queue of the victim."""
    node: str


Attack = Callable[[User, Target, random.Random], Awaitable[list[Answer]]]


@dataclass(frozen=True, slots=True)
class Attempt:
    name: str
    act: Attack
    refused: bool = True
    """Whether every answer must be a refusal."""


def _paths(victim: str) -> list[str]:
    core = f"/api/v1/namespaces/{victim}"
    return [
        f"{core}/secrets",
        f"{core}/secrets/treasure",
        f"{core}/configmaps/treasure",
        f"{core}/pods",
        f"{core}/pods/keeper",
        f"{core}/pods/keeper/log",
        f"{core}/pods/keeper/exec?command=id&stdout=true",
        f"{core}/pods/keeper/proxy/",
        f"{core}/serviceaccounts",
        f"{core}/events",
        "/api/v1/secrets",
        "/api/v1/pods",
        "/api/v1/configmaps?fieldSelector=metadata.name%3Dtreasure",
        f"{BATCH}/namespaces/{victim}/jobs",
        f"{BATCH}/jobs",
        f"{RBAC}/clusterrolebindings",
        "/api/v1/nodes/{node}/proxy/pods",
        f"/api/v1/watch/namespaces/{victim}/secrets",
        f"{core}/secrets?watch=true&timeoutSeconds=1",
    ]


async def read_others(user: User, target: Target, draw: random.Random) -> list[Answer]:
    path = draw.choice(_paths(target.victim)).replace("{node}", target.node)
    return [await user.send("GET", path)]


async def read_by_odd_paths(user: User, target: Target, draw: random.Random) -> list[Answer]:
    own, victim = user.namespace, target.victim
    odd = draw.choice(
        [
            f"/api/v1/namespaces/{own}/../{victim}/secrets/treasure",
            f"/api/v1/namespaces/{own}%2f..%2f{victim}/secrets/treasure",
            f"/api/v1//namespaces/{victim}/secrets/treasure",
            f"/api/v1/namespaces/{own}/secrets/..%2f..%2f{victim}%2fsecrets%2ftreasure",
            f"/api/v1/namespaces/{own}/secrets?fieldSelector=metadata.namespace%3D{victim}",
            f"/api/v1/namespaces/{victim}/secrets/treasure?namespace={own}",
            f"/api/v1/namespaces/{own}/configmaps/{victim}%2ftreasure",
            f"/openapi/../api/v1/namespaces/{victim}/secrets/treasure",
            "/logs/", "/debug/pprof/", "/metrics", "/proxy/", "/configz", "/.git/config",
        ]
    )  # fmt: skip
    return [await user.send("GET", odd)]


async def impersonate(user: User, target: Target, draw: random.Random) -> list[Answer]:
    headers = draw.choice(
        [
            {"Impersonate-User": "admin"},
            {"Impersonate-User": user.namespace, "Impersonate-Group": "system:masters"},
            {"Impersonate-User": f"system:serviceaccount:{target.victim}:{target.victim}"},
            {"Impersonate-User": "system:apiserver", "Impersonate-Extra-scopes": "all"},
            {"impersonate-user": "system:admin", "Impersonate-Uid": "0"},
        ]
    )
    path = f"/api/v1/namespaces/{target.victim}/secrets/treasure"
    return [await user.send("GET", path, headers=headers)]


async def take_tokens(user: User, target: Target, draw: random.Random) -> list[Answer]:
    victim, account = draw.choice(
        [(target.victim, target.victim), (target.victim, "default"), ("kube-system", "default")]
    )
    path = f"/api/v1/namespaces/{victim}/serviceaccounts/{account}/token"
    seconds = draw.choice([600, 3600, -1, 10**12])
    return [await user.send("POST", path, {"spec": {"expirationSeconds": seconds}})]


async def grant(user: User, target: Target, draw: random.Random) -> list[Answer]:
    own, name = user.namespace, f"r{draw.randrange(10**9)}"
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    subject = {"kind": "ServiceAccount", "name": own, "namespace": own}
    admin = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "cluster-admin",
    }
    bodies: list[tuple[str, Any]] = [
        (f"{RBAC}/namespaces/{own}/roles", {"rules": everything}),
        (f"{RBAC}/clusterroles", {"rules": everything}),
        (
            f"{RBAC}/clusterroles",
            {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {}}]}},
        ),
        (f"{RBAC}/namespaces/{own}/rolebindings", {"roleRef": admin, "subjects": [subject]}),
        (f"{RBAC}/clusterrolebindings", {"roleRef": admin, "subjects": [subject]}),
        (
            f"{RBAC}/clusterrolebindings",
            {"roleRef": {**admin, "name": "not-there-yet"}, "subjects": [subject]},
        ),
        ("/api/v1/namespaces", {}),
    ]
    path, body = draw.choice(bodies)
    return [await user.send("POST", path, {"metadata": {"name": name}, **body})]


async def change_others(user: User, target: Target, draw: random.Random) -> list[Answer]:
    core, merge = f"/api/v1/namespaces/{target.victim}", "application/merge-patch+json"
    label = {"metadata": {"labels": {"owned": "yes"}}}
    calls: list[tuple[str, str, Any]] = [
        ("DELETE", f"{core}/pods/keeper", None),
        ("DELETE", f"{core}/secrets", None),
        ("PATCH", f"{core}/secrets/treasure", label),
        ("PATCH", f"{SCHEDULING}/queues/{target.victim}", {"spec": {"weight": 1}}),
        ("DELETE", f"{SCHEDULING}/queues/{target.victim}", None),
        ("PATCH", f"/api/v1/namespaces/{user.namespace}", label),
        ("PATCH", f"/api/v1/nodes/{target.node}", {"spec": {"unschedulable": True}}),
        ("PATCH", f"/api/v1/nodes/{target.node}/status", {"status": {"capacity": {"cpu": "999"}}}),
        ("POST", f"{core}/pods/keeper/eviction", {"metadata": {"name": "keeper"}}),
        ("POST", f"{core}/pods", {"metadata": {"name": "x"}, "spec": _pod_spec()}),
        ("PUT", f"{BATCH}/namespaces/{target.victim}/jobs/steady/status", {"status": {}}),
    ]
    method, path, body = draw.choice(calls)
    return [
        await user.send(
            method, path, body, media=merge if method == "PATCH" else "application/json"
        )
    ]


_KINDS: Final = {"jobs": "Job", "podgroups": "PodGroup", "queues": "Queue", "commands": "Command"}


def _typed(path: str, body: Any) -> Any:
    """Add apiVersion and kind, which custom resources need."""
    parts = path.split("/")
    if parts[1] != "apis" or "volcano" not in parts[2]:
        return body
    return {"apiVersion": f"{parts[2]}/{parts[3]}", "kind": _KINDS[parts[-1]], **body}


def _pod_spec(**fields: Any) -> Any:
    container = {"name": "main", "image": "host", "command": ["true"]}
    return {"restartPolicy": "Never", "containers": [container], **fields}


async def close_queue(user: User, target: Target, draw: random.Random) -> list[Answer]:
    ref = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": target.victim}
    if draw.random() < 0.5:
        ref["uid"] = "00000000-0000-0000-0000-000000000000"
    body = {
        "metadata": {"generateName": "close-"},
        "action": draw.choice(["CloseQueue", "OpenQueue"]),
        "target": ref,
    }
    path = f"{BUS}/namespaces/{user.namespace}/commands"
    return [await user.send("POST", path, _typed(path, body))]


async def jump_the_queue(user: User, target: Target, draw: random.Random) -> list[Answer]:
    own, name = user.namespace, f"j{draw.randrange(10**9)}"
    template = {"spec": _pod_spec()}
    task = {"name": "t", "replicas": 1, "template": template}
    spec: Any = {"schedulerName": "volcano", "queue": target.victim, "tasks": [task]}
    calls: list[tuple[str, Any]] = [
        (f"{BATCH}/namespaces/{own}/jobs", {"metadata": {"name": name}, "spec": spec}),
        (
            f"{SCHEDULING}/namespaces/{own}/podgroups",
            {"metadata": {"name": name}, "spec": {"minMember": 1, "queue": target.victim}},
        ),
        (
            f"/api/v1/namespaces/{own}/pods",
            {"metadata": {"name": name}, "spec": _pod_spec(nodeName=target.node)},
        ),
        (
            f"/api/v1/namespaces/{own}/bindings",
            {"metadata": {"name": name}, "target": {"kind": "Node", "name": target.node}},
        ),
        (f"{SCHEDULING}/queues", {"metadata": {"name": name}, "spec": {"weight": 1000}}),
    ]
    path, body = draw.choice(calls)
    return [await user.send("POST", path, _typed(path, body))]


async def nonsense(user: User, target: Target, draw: random.Random) -> list[Answer]:
    """Bodies that are deep, wide or wrong: a refusal or a stored object, never an outage."""
    n = draw.choice([1_000, 20_000, 100_000])
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    maps = f"/api/v1/namespaces/{user.namespace}/configmaps"
    strict = maps + "?fieldValidation=Strict"
    name = f"c{draw.randrange(50)}"
    yaml, as_json = "application/yaml", "application/json"
    bodies: list[tuple[str, str, bytes]] = [
        (reviews, yaml, b"[" * n + b"]" * n),
        (reviews, as_json, b"[" * n + b"]" * n),
        (reviews, yaml, b"? " * n),
        (reviews, yaml, b"a: &a [" + b"*a," * n + b"]"),
        (maps, yaml, b"".join(b"k%d: 1\n" % i for i in range(n))),
        (strict, as_json, b"{" + b",".join(b'"a":1' for _ in range(n)) + b"}"),
        (strict, as_json, b'{"data":{' + b",".join(b'"k%d":""' % i for i in range(n)) + b"}}"),
        (
            maps,
            as_json,
            b'{"metadata":{"name":"%s"},"data":{"a":"%s"}}' % (name.encode(), b"x" * n),
        ),
        (maps, as_json, b"\xff" * 1000),
        (maps, as_json, b'{"metadata":{"name":"' + b"a" * n + b'"}}'),
    ]
    path, media, body = draw.choice(bodies)
    return [await user.send("POST", path, body, media=media)]


async def heavy_objects(user: User, target: Target, draw: random.Random) -> list[Answer]:
    """Objects whose checks could cost more than their size."""
    own, n = user.namespace, draw.choice([200, 2_000, 8_000])
    name = f"h{draw.randrange(20)}"
    tolerations = [{"key": f"k{i}", "operator": "Exists"} for i in range(n)]
    pod = {
        "metadata": {"name": name},
        "spec": _pod_spec(tolerations=tolerations, schedulerName="no"),
    }
    tasks = [
        {"name": f"t{i}", "replicas": 1, "template": {"spec": _pod_spec()},
         "dependsOn": {"name": [f"t{j}" for j in range(max(0, i - 20), i)]}}
        for i in range(min(n, 500))
    ]  # fmt: skip
    wide = {
        "name": "t",
        "replicas": draw.choice([10**6, 2**31 - 1]),
        "template": {"spec": _pod_spec()},
    }
    plugins: dict[str, list[str]] = {"ssh": [], "svc": []}
    jobs = f"{BATCH}/namespaces/{own}/jobs"
    meta, spec = {"name": name}, {"schedulerName": "volcano", "queue": own}
    calls: list[tuple[str, Any]] = [
        (f"/api/v1/namespaces/{own}/pods", pod),
        (jobs, {"metadata": meta, "spec": {**spec, "tasks": tasks}}),
        (jobs, {"metadata": meta, "spec": {**spec, "tasks": [wide], "plugins": plugins}}),
    ]
    path, body = draw.choice(calls)
    answers = [await user.send("POST", path, _typed(path, body))]
    patch = {"metadata": {"labels": {"a": str(draw.random())}}}
    for media in ("application/strategic-merge-patch+json", "application/merge-patch+json"):
        answers.append(await user.send("PATCH", f"{path}/{name}", patch, media=media))
    answers.append(await user.send("DELETE", f"{path}/{name}?gracePeriodSeconds=0"))
    return answers


async def selectors(user: User, target: Target, draw: random.Random) -> list[Answer]:
    n = draw.choice([10, 1_000, 5_000])
    path = f"/api/v1/namespaces/{user.namespace}/pods"
    many = ",".join(f"k{i}=v" for i in range(n))
    odd = draw.choice([many, "a in (" + "b," * n + "c)", "!" * n, "((((" * n, "a=\x00"])
    return [await user.send("GET", f"{path}?labelSelector={quote(odd)}")]


async def unread_watches(user: User, target: Target, draw: random.Random) -> list[Answer]:
    """Watches and lists whose answers are never read."""
    path = f"/api/v1/namespaces/{user.namespace}/configmaps"
    big = {"metadata": {"name": f"big{draw.randrange(20)}"}, "data": {"a": "x" * 900_000}}
    await user.send("POST", path, big)
    async with AsyncExitStack() as stack:
        for _ in range(10):
            try:
                await stack.enter_async_context(user.open(f"{path}?watch=true"))
            except (OSError, aiohttp.ClientError):
                break
        patch = {"data": {"b": str(draw.random())}}
        for _ in range(5):
            await user.send(
                "PATCH",
                f"{path}/{big['metadata']['name']}",
                patch,
                media="application/merge-patch+json",
            )
    return []


async def silent_connections(user: User, target: Target, draw: random.Random) -> list[Answer]:
    """Connections that say nothing, or half a request."""
    host, port = user.config.server.removeprefix("https://").rsplit(":", 1)
    writers = []
    for _ in range(150):
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 2)
        except (OSError, TimeoutError):
            break
        writers.append(writer)
        if draw.random() < 0.3:
            writer.write(b"\x16\x03\x01")
    await asyncio.sleep(draw.random())
    for writer in writers:
        writer.close()
    return []


ATTEMPTS: Final = (
    Attempt("read other namespaces", read_others),
    Attempt("read by odd paths", read_by_odd_paths, refused=False),
    Attempt("impersonate", impersonate),
    Attempt("take tokens of others", take_tokens),
    Attempt("grant rights", grant),
    Attempt("change objects of others", change_others),
    Attempt("close a queue by a Command", close_queue),
    Attempt("use a foreign queue or node", jump_the_queue),
    Attempt("deep, wide and wrong bodies", nonsense, refused=False),
    Attempt("objects with costly checks", heavy_objects, refused=False),
    Attempt("long selectors", selectors, refused=False),
    Attempt("unread watches", unread_watches, refused=False),
    Attempt("silent connections", silent_connections, refused=False),
)
