"""What nodes have allocated and in which state they are. Pure functions.

Informers keep these small objects instead of whole nodes and pods: a pod of 15 kB takes 1 kB.
Amounts are the requests of pods, in billionths of a unit as in `Quantity`; nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.drain import Drain, drain_of
from hekla.api.pod_resources import pod_requests
from hekla.api.wellknown import PodPhase
from hekla.cli.capacity.gpus import Gpu, Share, gpus_of, shares_of
from hekla.sdk import pending_reasons
from hekla.units.objects import Object
from hekla.units.quantity import NANOS, Quantity, QuantityError, parse_quantity

Nanos = dict[str, int]
"""Amounts by resource, in billionths."""

GPU: Final = "gpu"
"""All whole GPUs, of any vendor: `nvidia.com/gpu`, `amd.com/gpu`."""
DRAINING: Final = "draining"
DRAINED: Final = "drained"
MAX_REASON: Final = 300
_FINISHED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
_GIB: Final = 2**30 * NANOS


@dataclass(frozen=True, slots=True)
class PodUse:
    """A pod as far as capacity is concerned."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    created: str
    group: str
    """The name of its PodGroup."""
    owners: tuple[str, ...]
    requests: Nanos
    leaves_with_node: bool
    """Whether it belongs to its node, as the pods of DaemonSets: a drain does not wait for it."""
    reason: str
    """Why it does not run."""
    shares: tuple[Share, ...] = ()

    @property
    def whole_gpus(self) -> int:
        return self.requests.get(GPU, 0) // NANOS

    @property
    def is_on_node(self) -> bool:
        """Whether it holds its requests on a node, as the scheduler counts."""
        return bool(self.node) and self.phase not in _FINISHED


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node as far as capacity is concerned."""

    name: str
    created: str
    ready: str
    """The status of its condition Ready."""
    problem: str
    """Why it is not ready."""
    drain: Drain | None
    is_simulated: bool
    allocatable: Nanos
    taints: tuple[str, ...]
    gpus: tuple[Gpu, ...] = ()
    """As it registers them; empty if it only has a number of them."""

    @property
    def gpu_count(self) -> int:
        return max(len(self.gpus), self.allocatable.get(GPU, 0) // NANOS)


@dataclass(slots=True)
class NodeUse:
    """A node and what its pods have allocated."""

    info: NodeInfo
    allocated: Nanos = field(default_factory=dict)
    pods: int = 0
    is_busy: bool = False
    """Whether a drain waits for pods on it."""

    @property
    def state(self) -> str:
        """`Ready`, `NotReady` and `draining` or `drained`, and whether it is simulated."""
        info = self.info
        words = []
        if info.ready != "True":
            words.append("NotReady")
        if info.drain is not None:
            words.append(DRAINING if self.is_busy else DRAINED)
        words = words or ["Ready"]
        return ",".join([*words, "simulated"] if info.is_simulated else words)

    @property
    def takes_pods(self) -> bool:
        return self.info.ready == "True" and self.info.drain is None

    @property
    def reason(self) -> str:
        """Why it takes no pods; empty if it does."""
        info, texts = self.info, []
        if info.ready != "True":
            texts.append(info.problem or "it does not report that it is ready")
        if info.drain is not None:
            by = f" (by {info.drain.by})" if info.drain.by else ""
            texts.append((info.drain.reason or "cordoned without a reason") + by)
        return "; ".join(texts)


def pod_use(pod: Object) -> PodUse:
    """Return what counts of a pod."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    notes = metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    phase = str(status.get("phase") or PodPhase.PENDING)
    waits = phase not in (PodPhase.RUNNING, PodPhase.SUCCEEDED)
    reasons = (reason.text for reason in pending_reasons.of_pod(pod)) if waits else iter(())
    return PodUse(
        namespace=str(metadata.get("namespace", "")),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        node=str(spec.get("nodeName") or ""),
        phase=phase,
        created=str(metadata.get("creationTimestamp") or ""),
        group=str(notes.get(wellknown.GROUP_NAME) or ""),
        owners=tuple(str(owner.get("uid", "")) for owner in owners),
        requests=_requests(spec),
        leaves_with_node=is_of_node(pod),
        reason=next(reasons, "")[:MAX_REASON],
        shares=shares_of(pod) if phase not in _FINISHED else (),
    )


def is_of_node(pod: Object) -> bool:
    """Return whether a pod belongs to its node: of a DaemonSet, or a static pod's mirror."""
    owners = pod["metadata"].get("ownerReferences") or ()
    notes = pod["metadata"].get("annotations") or {}
    return wellknown.MIRROR_POD in notes or any(
        owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners
    )


def node_info(node: Object) -> NodeInfo:
    """Return what counts of a node."""
    metadata, status = node["metadata"], node.get("status") or {}
    conditions = status.get("conditions") or ()
    ready: Mapping[str, Any] = next((c for c in conditions if c.get("type") == "Ready"), {})
    problem = str(ready.get("message") or ready.get("reason") or "")
    taints = (node.get("spec") or {}).get("taints") or ()
    return NodeInfo(
        name=str(metadata["name"]),
        created=str(metadata.get("creationTimestamp") or ""),
        ready=str(ready.get("status") or "Unknown"),
        problem="" if ready.get("status") == "True" else problem[:MAX_REASON],
        drain=drain_of(node),
        is_simulated=wellknown.SIMULATED_NODE in (metadata.get("labels") or {}),
        allocatable=nanos_of(status.get("allocatable") or {}),
        taints=tuple(_taint_text(taint) for taint in taints),
        gpus=gpus_of(node),
    )


def node_uses(nodes: Iterable[NodeInfo], pods: Iterable[PodUse]) -> list[NodeUse]:
    """Return the nodes by name, with what the pods on them have allocated."""
    uses = {info.name: NodeUse(info) for info in sorted(nodes, key=lambda info: info.name)}
    for pod in pods:
        use = uses.get(pod.node)
        if use is None or not pod.is_on_node:
            continue
        add(use.allocated, pod.requests)
        use.pods += 1
        use.is_busy |= not pod.leaves_with_node
    return list(uses.values())


def add(total: Nanos, more: Nanos) -> None:
    """Add amounts to `total`."""
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _requests(spec: Object) -> Nanos:
    try:
        return _with_gpus({name: amount.nanos for name, amount in pod_requests(spec).items()})
    except QuantityError:  # only a foreign API server accepts such a pod
        return {}


def nanos_of(texts: Mapping[str, Any]) -> Nanos:
    """Return the amounts of a resource list, with the sum of its GPUs."""
    found: Nanos = {}
    for name, text in texts.items():
        try:
            found[name] = parse_quantity(text).nanos
        except QuantityError:
            continue
    return _with_gpus(found)


def _with_gpus(amounts: Nanos) -> Nanos:
    # Volcano's minResources has an amount twice, with and without the prefix of quotas.
    gpus = [
        amount
        for name, amount in amounts.items()
        if name.endswith("/gpu") and not name.startswith(("requests.", "limits."))
    ]
    return {**amounts, GPU: sum(gpus)} if gpus else amounts


def _taint_text(taint: Mapping[str, Any]) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key', '')}{value}:{taint.get('effect', '')}"


def amount_text(resource: str, nanos: int) -> str:
    """Return an amount for people: cores, Gi, or a number.

    >>> amount_text("cpu", 1_500_000_000), amount_text("memory", 3 * 2**29 * NANOS)
    ('1.5', '1.5Gi')
    """
    if resource == wellknown.MEMORY:
        return f"{_short(nanos / _GIB)}Gi"
    return _short(nanos / NANOS)


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}".removesuffix(".0")


def share_text(resource: str, used: int, of: int) -> str:
    """Return `used/of`, such as `1.5/4`; a dash if there is none of it."""
    if not used and not of:
        return "-"
    return f"{amount_text(resource, used).removesuffix('Gi')}/{amount_text(resource, of)}"


def canonical(amounts: Nanos) -> dict[str, str]:
    """Return amounts as Kubernetes writes them, for programs."""
    binary = (wellknown.MEMORY, wellknown.EPHEMERAL_STORAGE)
    return {
        name: str(Quantity(nanos, "BinarySI" if name in binary else "DecimalSI"))
        for name, nanos in sorted(amounts.items())
        if name != GPU
    }
