"""Send the same steps to both servers and collect the differences of their responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tools.differential.known import excuse
from tools.differential.normal import Difference, Normal, differences
from tools.differential.samples import SAMPLES
from tools.differential.steps import Step, Steps
from tools.differential.wire import Answer, Peer
from tools.waiting import until

EPISODE = 40
"""Steps per namespace: a difference that remains in an object must not spread."""
_EXAMPLES = 3
_READY_S = 30.0
_LAST = "zz-last"


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference with the request that showed it."""

    step: Step
    found: Difference
    where: str

    @property
    def signature(self) -> str:
        return f"{self.step.label} | {self.step.sample.plural} | {self.found.path}"


@dataclass
class Totals:
    requests: int = 0
    episodes: int = 0
    watched: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[Finding]] = field(default_factory=dict)
    labels: Counter[str] = field(default_factory=Counter)

    def add(self, finding: Finding) -> None:
        self.findings[finding.signature] += 1
        kept = self.examples.setdefault(finding.signature, [])
        if len(kept) < _EXAMPLES:
            kept.append(finding)


class Comparison:
    """Two servers, `real` and `ours`."""

    def __init__(self, real: Peer, ours: Peer, totals: Totals) -> None:
        self._real = real
        self._ours = ours
        self.totals = totals

    def run(self, seed: int, requests: int) -> None:
        """Run episodes, drawn from the seed and their number, until enough requests were sent."""
        episode = 0
        while self.totals.requests < requests:
            self._episode(seed, episode)
            episode += 1
            self.totals.episodes += 1

    def _episode(self, seed: int, number: int) -> None:
        namespace = f"d{seed}-{number}"
        for peer in (self._real, self._ours):
            peer.objects.clear()
            peer.older.clear()
            peer.tokens.clear()
            _make_namespace(peer, namespace)
        steps = Steps(Random(f"{seed}/{number}"), namespace)
        normals = Normal(), Normal()
        since = [_version_of(peer, namespace) for peer in (self._real, self._ours)]
        for index in range(EPISODE):
            step = steps.next()
            if not self._step(step, normals, f"seed {seed} episode {number} step {index}"):
                return
        self._replay(namespace, since, f"seed {seed} episode {number} watch")

    def _step(self, step: Step, normals: tuple[Normal, Normal], where: str) -> bool:
        """Return whether the episode can continue: both servers accepted or rejected the write."""
        real, ours = step.send(self._real), step.send(self._ours)
        self.totals.requests += 1
        self.totals.labels[step.label.partition(":")[0].partition("{")[0]] += 1
        agree = True
        for found in self._compare(step, real, ours, normals):
            known = excuse(step, found)
            if known is not None:
                self.totals.excused[known.title] += 1
            else:
                self.totals.add(Finding(step, found, where))
                agree = False
        done = [step.method != "GET" and answer.status < 300 for answer in (real, ours)]
        return done[0] == done[1] and (agree or not done[0])

    def _compare(
        self, step: Step, real: Answer, ours: Answer, normals: tuple[Normal, Normal]
    ) -> Iterator[Difference]:
        theirs, own = (
            {
                "code": answer.status,
                "body": normal.of(
                    _uncounted(answer.content) if step.sample.is_counted else answer.content
                ),
                "warnings": [normal.text(text) for text in answer.warnings],
                "type": answer.headers.get("content-type", ""),
            }
            for answer, normal in zip((real, ours), normals, strict=True)
        )
        yield from differences(theirs, own)

    def _replay(self, namespace: str, since: list[str], where: str) -> None:
        """Compare the watch events of all ConfigMaps of the episode."""
        sample = _CONFIG_MAPS
        path = sample.collection(namespace)
        last = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": _LAST}}
        step = Step("watch replay", sample, "POST", path, lambda _: last)
        told = []
        for peer, version in zip((self._real, self._ours), since, strict=True):
            step.send(peer)
            events = peer.watch(path, {"resourceVersion": version}, _is_last)
            # Each server creates the root certificate at another time.
            told.append(Normal().of([e for e in events if _name(e) != "kube-root-ca.crt"]))
        self.totals.watched += len(told[0])
        for found in differences(*told):
            if excuse(step, found) is None:
                self.totals.add(Finding(step, found, where))


_CONFIG_MAPS = SAMPLES[0]


def _uncounted(value: Any) -> Any:
    """Return the object without counts and the versions that counting creates."""
    if isinstance(value, list):
        return [_uncounted(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: _uncounted(item) for key, item in value.items() if key != "managedFields"}
    if isinstance(kept.get("status"), dict):
        del kept["status"]
    if "resourceVersion" in kept:
        kept["resourceVersion"] = "0"
    return kept


def _name(event: Any) -> str:
    return str(event.get("object", {}).get("metadata", {}).get("name", ""))


def _is_last(event: Any) -> bool:
    return _name(event) == _LAST or event.get("type") == "ERROR"


def _make_namespace(peer: Peer, name: str) -> None:
    """Create a namespace and wait for its default objects, so that lists are equal."""
    body = b'{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"%s"}}' % name.encode()
    peer.request("POST", "/api/v1/namespaces", {}, {"Content-Type": "application/json"}, body)
    wanted = (
        f"/api/v1/namespaces/{name}/serviceaccounts/default",
        f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt",
    )
    until(
        lambda: all(peer.request("GET", path).status == 200 for path in wanted),
        f"{peer.kubeconfig}: namespace {name} has no service account",
        _READY_S,
    )


def _version_of(peer: Peer, namespace: str) -> str:
    answer = peer.request("GET", f"/api/v1/namespaces/{namespace}/configmaps")
    return str(answer.content["metadata"]["resourceVersion"])
