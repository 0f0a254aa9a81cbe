"""The Pod Security Standards: which fields of a pod a level allows. Pure functions.

    policy, errors = read_policy(namespace_labels, default_policy("baseline"))
    violations(policy.enforce, pod)      # "privileged (container "a" must not set …)"

Levels, labels, checks and messages are those of Kubernetes. There is one version of the checks,
the latest: labels that name an earlier version are accepted and evaluated as the latest.
"""

from hekla.api.pod_security.levels import (
    LEVELS,
    Policy,
    check_labels,
    default_policy,
    read_policy,
)
from hekla.api.pod_security.standards import reasons, violations
from hekla.api.pod_security.templates import pod_templates

__all__ = [
    "LEVELS",
    "Policy",
    "check_labels",
    "default_policy",
    "pod_templates",
    "read_policy",
    "reasons",
    "violations",
]
