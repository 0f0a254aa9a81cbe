"""The pod failure policy of a Kubernetes Job. Pure."""

from __future__ import annotations

from hekla.controllers.objects import key_of, status_of
from hekla.controllers.workloads.pods import condition, is_finished
from hekla.units.objects import Object

IGNORE, FAIL_JOB, FAIL_INDEX, COUNT = "Ignore", "FailJob", "FailIndex", "Count"


def failure_action(job: Object, pod: Object) -> tuple[str, str]:
    """Return the action of the first rule that matches a failed pod, and why; else `Count`."""
    if not is_finished(pod):
        return COUNT, ""
    rules = (job["spec"].get("podFailurePolicy") or {}).get("rules") or ()
    for number, rule in enumerate(rules):
        why = _by_exit_code(rule, pod) or _by_condition(rule, pod)
        if why:
            action, (namespace, name) = str(rule["action"]), key_of(pod)
            return action, (
                f"{why} for pod {namespace}/{name} matching {action} rule at index {number}"
            )
    return COUNT, ""


def _by_exit_code(rule: Object, pod: Object) -> str:
    wanted = rule.get("onExitCodes")
    if not wanted:
        return ""
    status = status_of(pod)
    every = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    for container in every:
        code = ((container.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
        named = wanted.get("containerName") in (None, container.get("name"))
        listed = code in (wanted.get("values") or ())
        if named and code and listed == (wanted.get("operator") == "In"):
            return f"Container {container.get('name')} failed with exit code {code}"
    return ""


def _by_condition(rule: Object, pod: Object) -> str:
    for pattern in rule.get("onPodConditions") or ():
        found = condition(pod, pattern.get("type", ""))
        if found is not None and found.get("status") == (pattern.get("status") or "True"):
            return f"Pod condition {pattern['type']}"
    return ""
