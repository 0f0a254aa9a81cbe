"""Fuzz the API: real requests over real connections with malformed bodies and queries.

Every request must get a rejection or a success in time, never a 500.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import quote

import aiohttp

from hekla.api import kinds
from hekla.apiserver.server import ApiServer
from tools.fuzz.mutate import as_json, mutate_bytes, mutate_json
from tools.fuzz.seeds import OBJECTS, PATCHES, POD, TEXTS

ANSWER_WITHIN_S = 20.0
TOGETHER = 8
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
BODY_TYPES = (
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
)
QUERIES = (
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "timeoutSeconds",
    "fieldManager",
    "fieldValidation",
    "dryRun",
    "propagationPolicy",
    "force",
    "gracePeriodSeconds",
    "pretty",
    "includeObject",
    "tailLines",
    "sinceSeconds",
    "container",
)
ACCEPTS = (
    "*/*",
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/cbor",
    ";;,=",
)
SUBRESOURCES = (
    "",
    "",
    "",
    "status",
    "scale",
    "binding",
    "eviction",
    "log",
    "token",
    "finalize",
    "é",
)


class Finding(AssertionError):
    """An invalid response; the text contains the request."""


@dataclass
class Totals:
    sent: int = 0
    answers: Counter[int] = field(default_factory=Counter)


def _paths() -> dict[str, kinds.Kind]:
    return {f"{kind.api_version}/{kind.kind}": kind for kind in kinds.BUILTIN}


async def run(server: ApiServer, requests: int, seed: int) -> Totals:
    """Send malformed requests to a running server."""
    token = (server.config.data_dir / "pki" / "admin.token").read_text().strip()
    ca = (server.config.data_dir / "pki" / "ca.crt").read_text()
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cadata=ca))
    totals, left = Totals(), requests
    known = _paths()
    async with aiohttp.ClientSession(
        server.address,
        connector=connector,
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(ANSWER_WITHIN_S),
    ) as session:

        async def send(random: Random) -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await _one(session, random, known, totals)

        await asyncio.gather(*(send(Random(f"{seed}/{n}")) for n in range(TOGETHER)))
    return totals


async def _one(
    session: aiohttp.ClientSession, random: Random, known: dict[str, kinds.Kind], totals: Totals
) -> None:
    method, path, headers, body = _request(random, known)
    told = f"{method} {path} {headers}\n{body[:3000]!r}"
    try:
        async with session.request(method, path, headers=headers, data=body) as answer:
            text = await answer.read()
    except TimeoutError as error:
        raise Finding(f"no answer within {ANSWER_WITHIN_S} s: {told}") from error
    except aiohttp.ClientError as error:
        raise Finding(f"{error!r}: {told}") from error
    except ValueError:
        return  # it is not a valid request line
    totals.sent += 1
    totals.answers[answer.status] += 1
    # The response to a version from the future; without a body for HEAD.
    too_new = answer.status == 504 and (b"Too large resource version" in text or not text)
    # Kubernetes itself rejects an apply of undeclared fields with 500.
    as_upstream = answer.status == 500 and b"failed to create typed patch object" in text
    if answer.status >= 500 and not too_new and not as_upstream:
        raise Finding(f"{answer.status} {text[:500]!r}: {told}")
    is_json = answer.status >= 400 and answer.content_type == "application/json" and bool(text)
    if is_json and json.loads(text).get("kind") != "Status":
        raise Finding(f"a refusal without a Status: {text[:500]!r}: {told}")


def _request(
    random: Random, known: dict[str, kinds.Kind]
) -> tuple[str, str, dict[str, str], bytes]:
    obj = random.choice(OBJECTS)
    kind = known.get(f"{obj['apiVersion']}/{obj['kind']}")
    namespace, name = obj["metadata"].get("namespace", ""), str(obj["metadata"]["name"])
    if kind is None:  # Volcano's: from a definition
        path = f"/apis/{obj['apiVersion']}/namespaces/{namespace}/{obj['kind'].lower()}s"
    else:
        path = kind.path(namespace)
    method = random.choice(
        ("POST", "POST", "PUT", "PATCH", "PATCH", "GET", "GET", "DELETE", "HEAD")
    )
    headers = {
        "Accept": random.choice(ACCEPTS) if random.random() < 0.2 else "*/*",
        "Content-Type": random.choice(BODY_TYPES),
    }
    body = b""
    if method != "POST" and random.random() < 0.8:
        path += f"/{name}"
        sub = random.choice(SUBRESOURCES) if random.random() < 0.5 else ""
        path += f"/{quote(sub)}" if sub else ""
    if method in ("POST", "PUT", "DELETE"):
        given: Any = obj if method != "DELETE" else {"propagationPolicy": "Background"}
        body = _spoilt(given, random)
        if random.random() < 0.8:
            headers["Content-Type"] = "application/json"
    elif method == "PATCH":
        headers["Content-Type"] = random.choice(PATCH_TYPES)
        body = _spoilt(random.choice((*PATCHES, obj, POD)), random)
    return method, _with_query(path, random), headers, body


def _spoilt(value: Any, random: Random) -> bytes:
    if random.random() < 0.15:
        return as_json(value)
    made = as_json(mutate_json(value, random))
    return mutate_bytes(made, random) if random.random() < 0.15 else made


def _with_query(path: str, random: Random) -> str:
    pairs = []
    for name in random.sample(QUERIES, random.choice((0, 0, 1, 1, 2, 4))):
        value = random.choice((*TEXTS, "", "0", "-1", "true", "All", "99999999999999999999", "é"))
        pairs.append(f"{name}={quote(value)}")
    if "fieldManager" not in str(pairs) and random.random() < 0.5:
        pairs.append("fieldManager=fuzz")
    if random.random() < 0.03:
        path = mutate_bytes(path.encode(), random).decode("latin-1").replace("#", "%23")
        path = "/" + quote(path.lstrip("/"), safe="/%")
    return path + ("?" + "&".join(pairs) if pairs else "")
