"""What the operator of a server chooses about admission."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AdmissionConfig:
    pod_security_default: str = "baseline"
    """The Pod Security level of namespaces without a label; `kube-system` is privileged."""
    queue_access: bool = False
    """Whether submitting to a queue needs the verb `use` on it."""
