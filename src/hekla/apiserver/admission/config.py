"""What the operator of a server chooses about admission."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hekla.api.volcano.jobs import MAX_REPLICAS


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    pod_security_default: str = "baseline"
    """The Pod Security level of namespaces without a label; `kube-system` is privileged."""
    queue_access: bool = False
    """Whether submitting to a queue needs the verb `use` on it."""
    max_pods_per_job: int = MAX_REPLICAS
    """The most pods that a Volcano Job may have."""
    scheduler_config_problem: Callable[[str], str] | None = None
    """Returns why the scheduler would refuse a configuration; None: it is not checked."""
