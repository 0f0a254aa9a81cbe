"""Pains of operation (14 to 25): webhooks, size, status, lifecycle, configuration, devices."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator

import pytest
from tools.waiting import until

from hekla.api import wellknown
from hekla.kube.errors import KubeError
from hekla.kube.resources import (
    COMMANDS,
    JOBS,
    MUTATING_WEBHOOKS,
    NODES,
    PODS,
    QUEUES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
)
from hekla.scheduler.service.replay import Outcome
from tests.pains.site import AT_HERE, CONF, HERE, Json, Place, job


def test_14_webhook_timeouts_stop_pod_creation(place: Place) -> None:
    """volcano 3358, 3318: each pod of a large job waits for a webhook."""
    for kind in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        for found in place.client.list(kind).items:
            for hook in found["webhooks"]:
                named = {name for rule in hook["rules"] for name in rule["resources"]}
                assert not named & {"pods", "*", "pods/*", "*/*"}, "a webhook is called for pods"
    place.site.nodes(2, cpu=64)
    place.submit(job("wide", 100))
    place.runs("wide", 100)


@pytest.mark.slow
def test_15_webhook_down_cluster_down(place: Place) -> None:
    """volcano 3734, 3237, 704: plain pods cannot be created while webhooks are down."""
    site = place.site
    site.nodes(1)
    restart = [{"event": "PodFailed", "action": "RestartPod"}]
    place.submit(job("before", 2, policies=restart))
    before = place.runs("before", 2)
    if site.admission is not None:  # the embedded server has it built in
        site.admission.stop()
    try:
        plain = {
            "metadata": {"name": "plain"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        place.client.create(PODS, plain, namespace=place.namespace)
        place.finish("before", "Failed", 1)
        until(lambda: len(set(place.runs("before", 2)) - set(before)) == 1, "not replaced")
    finally:
        if site.admission is not None:
            site.restart_admission()


@pytest.mark.slow
def test_16_throughput_far_below_kube_scheduler(place: Place) -> None:
    """volcano 2460, 1740, 662; kube-batch 930: pods are decided one by one.

    Counted in cycles and not in seconds, so that a busy machine does not matter.
    """
    site = place.site
    site.restart_scheduler()  # its log begins here
    names = site.nodes(2, cpu=128)
    place.submit(job("many", 200, minAvailable=1, pod=AT_HERE))
    until(lambda: len(place.pods("many")) == 200)
    place.is_pending("many")
    for name in names:
        place.client.patch(NODES, name, {"metadata": {"labels": HERE}})
    place.runs("many", 200)
    binds = [count for each in site.recorded() if (count := each.count("Bind"))]
    assert len(binds) <= len(names), "one cycle per labelled node is enough"
    assert sum(binds) == 200


@pytest.mark.slow
def test_17_cycle_time_explodes_at_size(place: Place) -> None:
    """kai 315, 1850, 1809: a cycle copies the whole cluster.

    Counted in Python calls of the recorded cycles: what is done per node is done in arrays.
    """
    site = place.site
    site.restart_scheduler()  # its log begins here
    small, large = 10, 80
    for name, count in (("few", small), ("many", large - small)):
        site.nodes(count)
        for job_name in (f"{name}-first", f"{name}-second"):
            place.submit(job(job_name, 1))
            place.runs(job_name, 1)
    calls = dict(_calls(site.recorded()))
    few, many = (calls[place.key(f"{name}-second")] for name in ("few", "many"))
    assert many < 2 * few, f"{small} nodes: {few} calls, {large} nodes: {many} calls"


def _calls(outcomes: Iterator[Outcome]) -> Iterator[tuple[str, int]]:
    """Yield the job that each recorded cycle binds, and the calls to decide that again."""
    while True:
        counted = 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal counted
            counted += event == "call"

        sys.setprofile(count)
        try:
            outcome = next(outcomes, None)
        finally:
            sys.setprofile(None)
        if outcome is None:
            return
        for effect in outcome.decided.effects:
            if effect["type"] == "Bind":
                yield effect["job"], counted


def test_18_memory_grows_with_every_job(place: Place) -> None:
    """volcano 3205, 4745, 2554, 3597; kueue 3818, 4266: series and caches keep deleted jobs."""
    site = place.site
    site.nodes(1, cpu=8)
    for number in range(5):
        place.submit(job(f"gone-{number}", 1))
    place.submit(job("never", 1, "100"))
    place.is_pending("never")
    for number in range(5):
        place.runs(f"gone-{number}", 1)
    assert place.namespace in _metrics(place), "series of the jobs that exist"
    for found in place.client.list(JOBS, namespace=place.namespace).items:
        place.client.delete(JOBS, found["metadata"]["name"], namespace=place.namespace)
    cluster = site.scheduler.cluster
    until(lambda: not any(key.startswith(place.namespace) for key in list(cluster.jobs)))
    site.cycles(2)  # the first may have begun before the deletions
    assert not [key for key in site.scheduler.verdicts if key.startswith(place.namespace)]
    assert place.namespace not in _metrics(place)


def _metrics(place: Place) -> str:
    return place.site.on_loop(place.site.scheduler.render_metrics()).decode()


def test_19_status_drifts_from_truth(place: Place) -> None:
    """volcano 4584, 4270, 3112, 2684, 2657: counts and phases that no pod agrees with."""
    site = place.site
    site.nodes(1, cpu=4)
    queue = site.queue(f"q-{place.namespace}")
    place.submit(job("runs", 3, queue=queue))
    place.runs("runs", 3)
    until(lambda: _allocated(place, queue) == "3", "allocated")
    place.submit(job("waits", 2, queue=queue))
    place.is_pending("waits")
    until(lambda: place.phase("runs") == "Running")
    until(lambda: place.phase("waits") == "Pending", "phase")
    assert place.group("waits")["status"]["phase"] != "Running"
    place.finish("runs")
    place.runs("waits", 2)
    until(lambda: place.phase("runs") == "Completed")
    until(lambda: _allocated(place, queue) == "2", "allocated")
    place.finish("waits")
    until(lambda: _allocated(place, queue) in ("0", ""), "allocated")
    site.cycles()
    assert {place.phase(name) for name in ("runs", "waits")} == {"Completed"}
    assert _allocated(place, queue) in ("0", "")


def _allocated(place: Place, queue: str) -> str:
    status = place.client.get(QUEUES, queue).get("status") or {}
    return str((status.get("allocated") or {}).get("cpu", ""))


def test_20_job_lifecycle_corner_cases(place: Place) -> None:
    """volcano 5385, 1866, 4743, 2918, 1718, 1099, 436: restart, abort and retries mix up."""
    site = place.site
    site.nodes(2)
    restart = [{"event": "PodFailed", "action": "RestartPod"}]
    place.submit(job("restarts", 2, policies=restart))
    before = place.runs("restarts", 2)
    group = place.group("restarts")["metadata"]["uid"]
    place.finish("restarts", "Failed", 1)
    until(lambda: len(set(place.runs("restarts", 2)) - set(before)) == 1, "")
    assert place.group("restarts")["metadata"]["uid"] == group, "the PodGroup was replaced"
    # An aborted job stays aborted although its pods end.
    again = [{"event": "PodFailed", "action": "RestartJob"}]
    place.submit(job("stopped", 2, policies=again))
    place.runs("stopped", 2)
    _command(place, "stopped", "AbortJob")
    until(lambda: place.phase("stopped") == "Aborted", "not aborted")
    until(lambda: not place.pods("stopped"), "pods are left")
    site.cycles(2)
    assert place.phase("stopped") == "Aborted"
    # After the last retry nothing runs any more.
    place.submit(job("fails", 2, policies=again, maxRetry=1))
    first = place.runs("fails", 2)
    place.finish("fails", "Failed", 1)
    until(lambda: not set(place.runs("fails", 2)) & set(first), "no retry")
    place.finish("fails", "Failed", 1)
    until(lambda: place.phase("fails") == "Failed", "still retried")
    until(lambda: not place.running("fails"), "pods are left")


def _command(place: Place, name: str, action: str) -> None:
    found = place.client.get(JOBS, name, namespace=place.namespace)
    target = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }
    body = {"metadata": {"name": f"{name}-command"}, "action": action, "target": target}
    place.client.create(COMMANDS, body, namespace=place.namespace)


def test_21_one_bad_value_crashes_everything(place: Place) -> None:
    """volcano 5806, 4421, 5812, 1001, 3710, 4499: a wrong argument stops the scheduler."""
    site = place.site
    site.nodes(1, cpu=8)
    valid = site.scheduler.config
    tdm = "  - name: tdm\n    arguments:\n      tdm.revocable-zone.rz1: tomorrow\n"
    for number, text in enumerate(
        (
            CONF.format(shares="proportion", more=tdm),
            CONF.format(shares="nonsense", more=""),
            "actions: [",
        )
    ):
        site.configure(text)
        assert site.scheduler.config is valid, "the last valid configuration stays"
        place.submit(job(f"job-{number}", 2))
        place.runs(f"job-{number}", 2)


def test_22_gpu_sharing_books_wrong(place: Place) -> None:
    """volcano 3616, 2859, 3037, 1782, 1818; kai 848, 2153, 65: three 12 Gi pods on 24 Gi."""
    site = place.site
    sharing = "  - name: deviceshare\n    arguments:\n      deviceshare.GPUSharingEnable: true\n"
    site.configure(CONF.format(shares="proportion", more=sharing))
    # Two GPUs of 24: the sum allows four pods of 12 and also three of 16, the devices do not.
    site.nodes(1, extra={wellknown.GPU_MEMORY: 48, "volcano.sh/gpu-number": 2})
    place.submit(job("big", 3, minAvailable=1, limits={wellknown.GPU_MEMORY: "16"}))
    place.runs("big", 2)
    site.cycles(3)
    assert len(place.running("big")) == 2, "a device is over-committed"
    place.client.delete(JOBS, "big", namespace=place.namespace)
    until(lambda: not place.pods("big"))
    place.submit(job("half", 5, minAvailable=1, limits={wellknown.GPU_MEMORY: "12"}))
    place.runs("half", 4)
    site.cycles(3)
    used: dict[str, int] = {}
    for pod in place.pods("half"):
        if pod["spec"].get("nodeName"):
            card = pod["metadata"]["annotations"]["volcano.sh/gpu-index"]
            used[card] = used.get(card, 0) + 12
    assert used == {"0": 24, "1": 24}


def test_23_a_doomed_pod_wins_every_cycle(place: Place) -> None:
    """kai 2075: a binding that is refused for ever starves the others."""
    site = place.site
    site.nodes(1, cpu=2)
    name = f"no-{place.namespace}"
    policy: Json = {
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods/binding"],
                    }
                ]
            },
            "validations": [{"expression": "!request.name.startsWith('doomed')"}],
        },
    }
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    place.client.create(VALIDATING_POLICIES, policy)
    place.client.create(VALIDATING_POLICY_BINDINGS, binding)
    until(lambda: _refuses(place), "the policy is not in force")
    try:
        before = _failed_binds(place)
        place.submit(job("doomed", 1, "2", priorityClassName="high"))
        until(lambda: _failed_binds(place) > before, "it is bound")
        until(lambda: "denied request" in place.reason("doomed"), "no reason")
        place.submit(job("good", 1, "2"))
        place.runs("good", 1)
        assert not place.running("doomed")
    finally:
        place.client.delete(VALIDATING_POLICY_BINDINGS, name)
        place.client.delete(VALIDATING_POLICIES, name)


def _refuses(place: Place) -> bool:
    """Tell whether bindings are refused already: kube-apiserver reads policies after a while."""
    name = f"doomed-{uuid.uuid4().hex[:8]}"
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none"}
    pod = {"metadata": {"name": name}, "spec": spec}
    place.client.create(PODS, pod, namespace=place.namespace)
    try:
        place.client.bind(name, "nowhere", namespace=place.namespace)
    except KubeError as refusal:
        return "denied request" in str(refusal)
    finally:
        place.client.delete(PODS, name, namespace=place.namespace, grace_period_s=0)
    return False


def _failed_binds(place: Place) -> int:
    (line,) = re.findall(r'^.*"bind",.*"failed".*$', _metrics(place), re.MULTILINE)
    return int(float(line.rsplit(" ", 1)[1]))


def test_24_autoscalers_buy_nodes_for_pods_without_quota(place: Place) -> None:
    """volcano 3910, 4710, 4030, 2558; karpenter 742; kai 1615: quota looks like missing nodes."""
    site = place.site
    site.configure(CONF.format(shares="capacity", more=""))
    site.nodes(3, cpu=4)
    for name, body in (("plain", job), ("gated", _gated)):
        queue = site.queue(f"{name}-{place.namespace}", capability={"cpu": "2"})
        place.submit(body(name, 3, "1", minAvailable=1, queue=queue))
        place.runs(name, 2)
    place.submit(job("nodes", 1, "8"))
    until(lambda: "Unschedulable" in _scheduled(place, "nodes"), "no sign for autoscalers")
    site.cycles(3)
    for name in ("plain", "gated"):
        assert "Unschedulable" not in _scheduled(place, name), "an autoscaler would buy a node"
    (pod,) = (p for p in place.pods("gated") if "nodeName" not in p["spec"])
    assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [
        wellknown.QUEUE_ALLOCATION_GATE
    ]


def _gated(name: str, replicas: int, cpu: str, **spec: object) -> Json:
    body = job(name, replicas, cpu, **spec)
    note = {"annotations": {wellknown.QUEUE_ALLOCATION_GATE: "true"}}
    body["spec"]["tasks"][0]["template"]["metadata"] = note
    return body


def _scheduled(place: Place, name: str) -> list[str]:
    return [
        condition.get("reason", "")
        for pod in place.pods(name)
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled"
    ]


def test_25_no_way_to_try_before_you_buy(place: Place) -> None:
    """volcano 4276, 4738, 3822, 4459, 4740; kubernetes 58242; yunikorn 556: no what-if.

    What was recorded is decided again: as it was, and with another configuration.
    """
    site = place.site
    site.restart_scheduler()  # its log begins here
    site.nodes(2, cpu=4)
    place.submit(job("pair", 2))
    place.runs("pair", 2)
    assert len(set(place.running("pair").values())) == 2, "nodeorder spreads"
    assert _nodes_of_pair(place) == [2], "decided as recorded"
    packed = CONF.format(shares="proportion", more="  - name: binpack\n")
    packed = packed.replace("  - name: nodeorder\n", "")
    assert _nodes_of_pair(place, packed) == [1], "binpack would use one node"


def _nodes_of_pair(place: Place, conf: str | None = None) -> list[int]:
    """Return on how many nodes each recorded cycle places the pair by a configuration."""
    found = []
    for cycle in place.site.recorded(conf):
        binds = [e for e in cycle.decided.effects if e["type"] == "Bind"]
        if mine := {e["node"] for e in binds if e["job"] == place.key("pair")}:
            assert conf or cycle.is_same, cycle.difference
            found.append(len(mine))
    return found
