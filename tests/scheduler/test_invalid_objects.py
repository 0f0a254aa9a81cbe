"""Invalid objects: a cycle ends, raises nothing and schedules the other jobs."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import core, nodeinfo, scheduling, wellknown
from hekla.api.meta import convert
from hekla.api.numa import read_decision
from hekla.scheduler.core import decide
from hekla.scheduler.framework.config import parse
from hekla.scheduler.plugins import builtin
from hekla.scheduler.state import changes
from hekla.scheduler.state.changes import Measured, Put
from hekla.scheduler.state.cluster import Cluster
from hekla.scheduler.state.load import Reading
from hekla.testing import cluster, gang, node, pod, queue
from hekla.testing.objects import START

quantities = st.sampled_from(
    ["1", "-1", "0", "500m", "1e30", "-1e30", "lots", "", "1Gi", "0.0001", 3, -2, 1.5]
)
names = st.sampled_from(
    ["cpu", "memory", "pods", "nvidia.com/gpu", "count/x", "x", "", "hugepages-2Mi"]
)
impossible = st.dictionaries(names, st.sampled_from(["-1", "1e30", "lots", ""]), max_size=2)
amounts: st.SearchStrategy[dict[str, Any]] = st.dictionaries(names, quantities, max_size=3)
texts = st.sampled_from(["", "a", "zone", "kubernetes.io/hostname", "no such", "-", "1"])
selectors = st.one_of(
    st.none(),
    st.fixed_dictionaries({"matchLabels": st.dictionaries(texts, texts, max_size=2)}),
    st.fixed_dictionaries(
        {
            "matchExpressions": st.lists(
                st.fixed_dictionaries(
                    {
                        "key": texts,
                        "operator": st.sampled_from(["In", "NotIn", "Exists", "Gt", "What", ""]),
                        "values": st.lists(texts, max_size=2),
                    }
                ),
                max_size=2,
            )
        }
    ),
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if draw(st.booleans()):
        spec["nodeSelector"] = draw(st.dictionaries(texts, texts, max_size=2))
    if draw(st.booleans()):
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": draw(st.integers(-1, 3)),
                "topologyKey": draw(texts),
                "whenUnsatisfiable": draw(st.sampled_from(["DoNotSchedule", "ScheduleAnyway", ""])),
                "labelSelector": draw(selectors),
                "minDomains": draw(st.sampled_from([None, 0, 9])),
            }
        ]
    side = draw(st.sampled_from(["podAffinity", "podAntiAffinity"]))
    term = {"labelSelector": draw(selectors), "topologyKey": draw(texts)}
    if draw(st.booleans()):
        spec["affinity"] = {
            side: {
                "requiredDuringSchedulingIgnoredDuringExecution": [term],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": draw(st.integers(-5, 100)), "podAffinityTerm": term}
                ],
            },
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [draw(selectors) or {}]
                }
            },
        }
    if draw(st.booleans()):
        operator = draw(st.sampled_from(["Exists", "Equal", "?"]))
        spec["tolerations"] = [{"key": draw(texts), "operator": operator}]
    if draw(st.booleans()):
        spec["priority"] = draw(st.integers(-(2**31), 2**31 - 1))
    return spec


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_invalid_objects_never_stop_a_cycle_or_another_job(data: st.DataObject) -> None:
    bad = gang(
        "bad",
        members=data.draw(st.integers(0, 3)),
        minimum=data.draw(st.integers(-2, 5)),
        roles=data.draw(st.dictionaries(texts, st.integers(-2, 3), max_size=2)),
        queue=data.draw(st.sampled_from(["default", "odd", "none"])),
        min_resources=data.draw(st.one_of(st.none(), amounts)),
        phase=data.draw(st.sampled_from(["", "Pending", "Inqueue", "Running", "What"])),
        requests=data.draw(amounts),
        labels={"zone": "a"},
        spec=data.draw(specs()),
        annotations={"volcano.sh/sla-waiting-time": data.draw(texts)},
    )
    odd = convert(
        {
            "metadata": {"name": "odd"},
            "spec": {
                "weight": data.draw(st.integers(-3, 3)),
                "capability": data.draw(amounts),
                "guarantee": {"resource": data.draw(impossible)},
                "parent": data.draw(st.sampled_from(["odd", "root", ""])),
            },
        },
        scheduling.Queue,
    )
    strange = convert(
        {"metadata": {"name": "n9"}, "status": {"allocatable": data.draw(amounts)}}, core.Node
    )
    good = gang("good", members=2, cpu=1)
    world = cluster(
        [node("n1", cpu=8, labels={"zone": "a"}), strange],
        [bad, good],
        queues=[odd, queue("default", weight=5)],
        pods=[pod("r", node="n9", requests=data.draw(amounts))],
    )
    result = world.run()
    assert result.plan.failures == []
    bound = set(result.binds)
    if not bad.pods:
        assert {"good-0", "good-1"} <= bound
    for job in world.state.jobs.values():
        if job.by_status[0] and not {t.name for t in job.tasks.values()} <= bound:
            assert result.why(job.name), f"{job.key} waits without a reason"
    world.apply(result)
    again = world.run()
    assert again.plan.failures == []


# --- annotations and labels that plugins read ----------------------------------------------------

CONF = """\
actions: "enqueue, allocate, backfill, preempt, reclaim, shuffle"
metrics: {type: prometheus, address: "http://localhost:9090"}
tiers:
- plugins:
  - {name: priority}
  - {name: gang}
  - {name: conformance}
  - {name: cdp}
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: nodeorder}
  - {name: sla}
  - {name: usage}
  - {name: rescheduling, arguments: {interval: 1m}}
  - {name: resource-strategy-fit}
  - {name: fairshare}
  - {name: task-topology}
  - {name: network-topology-aware}
  - {name: numa-aware}
  - {name: deviceshare, arguments: {deviceshare.VGPUEnable: true}}
  - name: tdm
    arguments: {tdm.revocable-zone.night: "22:00-06:00", tdm.revocable-zone.day: "00:00-00:00"}
"""
OF_PODS = [
    wellknown.GPU_INDEX,
    wellknown.VGPU_IDS_NEW,
    wellknown.DEVICES_TO_ALLOCATE,
    wellknown.VGPU_NODE,
    wellknown.VGPU_TIME,
    wellknown.VGPU_MODE,
    wellknown.VGPU_USE_UUID,
    wellknown.VGPU_NOUSE_UUID,
    wellknown.USE_GPU_TYPE,
    wellknown.NOUSE_GPU_TYPE,
    wellknown.VGPU_PODGROUP_POLICY,
    wellknown.TOPOLOGY_DECISION,
    wellknown.NUMA_TOPOLOGY_POLICY,
    wellknown.REVOCABLE_ZONE,
    wellknown.PREEMPTABLE,
    wellknown.COOLDOWN_TIME,
    wellknown.TASK_INDEX,
    wellknown.TASK_PRIORITY,
    wellknown.RESOURCE_STRATEGY_SCORING_TYPE,
    wellknown.RESOURCE_STRATEGY_WEIGHT,
    wellknown.QOS_LEVEL,
]
OF_GROUPS = [
    wellknown.TASK_TOPOLOGY_AFFINITY,
    wellknown.TASK_TOPOLOGY_ANTI_AFFINITY,
    wellknown.TASK_TOPOLOGY_ORDER,
    wellknown.JDB_MIN_AVAILABLE,
    wellknown.JDB_MAX_UNAVAILABLE,
    wellknown.SLA_WAITING_TIME,
    wellknown.JOB_ALLOCATED_HYPERNODE,
    wellknown.SUBMITTED_BY,
    wellknown.PREEMPTABLE,
]
OF_NODES = [
    wellknown.NODE_VGPU_REGISTER,
    wellknown.NODE_VGPU_HANDSHAKE,
    wellknown.CARD_GROUPS,
    wellknown.GPU_UNHEALTHY_IDS,
    wellknown.HAMI_NODE_REGISTER.format(type="Ascend910B"),
    wellknown.HAMI_NODE_REGISTER.format(type="Ascend310P"),
]
LONG = "9" * 5000
words = st.sampled_from(
    [
        "", "-1", "0", "1", "*", "night", "true", "single-numa-node", "hami-core", "mig", "spread",
        "NaN", "Infinity", "1e30", LONG, "-" + LONG, LONG + "%", "150%", "-5%", "\u0663", "\u00b2",
        "\x00", "null", "{}", "[]", "[" * 50_000, '{"a":' * 50_000, "a,b;c:d", ",;:" * 50,
        "0,1,2,3;4,5", "worker,ps;ps", "w" * 10_000, "10m", "-10m", "9999999h",
        '{"numa":{"0":{"cpu":"-100"}}}', '{"numa":{"0":{"cpu":"2"},"1":{"cpu":"2"}}}',
        '{"numa":{"0":{"cpu":1e999}}}', '{"numa":[]}', '{"cpu": NaN}', '{"cpu": "x"}',
        "g0,4,16000,A100,true,hami-core:g1,4,16000,A100,true,hami-core:",
        f"g0,{LONG},{LONG},A100,true,mig:", "g0,-4,-16000,A100,true,hami-core:g0,1,1,,,:",
        "g0,NVIDIA,16000,100:;", f"g0,NVIDIA,{LONG},{LONG}:;", "g0,NVIDIA,-1,-1:g9,,,:",
        '[{"id":"a","devmem":-1,"count":1e30,"customInfo":{"NetworkID":NaN}}]',
        '[{"id":"a,b:c","devmem":65536,"count":4,"type":"Ascend910B","health":true,'
        '"customInfo":{"NetworkID":4000000000}}]',
    ]
)  # fmt: skip
numbers = st.sampled_from(["0", "1", "2", "-1", "1e30", "9223372036854775807", "500m", "lots", ""])
asks = st.dictionaries(
    st.sampled_from(
        [
            "nvidia.com/gpu", wellknown.VGPU_NUMBER, wellknown.VGPU_MEMORY, wellknown.VGPU_CORES,
            wellknown.VGPU_MEMORY_PERCENTAGE, wellknown.GPU_NUMBER, wellknown.GPU_MEMORY,
            "huawei.com/Ascend910B", "huawei.com/Ascend910B-memory",
        ]
    ),
    numbers,
    max_size=3,
)  # fmt: skip


def notes(keys: list[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.dictionaries(st.sampled_from(keys), words, max_size=4)


@st.composite
def numa_topologies(draw: st.DrawFn, name: str) -> nodeinfo.Numatopology:
    count = draw(st.sampled_from([0, 4, 8]))
    details = {str(c): {"numa": c // 4, "socket": 0, "core": c} for c in range(count)}
    if draw(st.booleans()):
        odd = {"numa": draw(st.sampled_from([-1, 0, 10**30])), "socket": 0, "core": 0}
        details[draw(st.sampled_from([LONG, "-1", "x", "\u00b2", "\u0663"]))] = odd
    told = draw(st.sampled_from(["0-7", "0-3", "", "x-y", "-1", f"0-{LONG}", "5-1", "0-99999999"]))
    spec = {
        "policies": {
            "CPUManagerPolicy": draw(st.sampled_from(["static", "none", ""])),
            "TopologyManagerPolicy": draw(
                st.sampled_from(["single-numa-node", "restricted", "best-effort", "none", "x", ""])
            ),
        },
        "resReserved": {"cpu": draw(numbers)},
        "numares": {"cpu": {"allocatable": told, "capacity": 8}},
        "cpuDetail": details,
        "podAllocations": [
            {"uid": "?", "containerAllocations": [{"name": "c", "allocations": {"cpu": told}}]}
        ],
    }
    return convert({"metadata": {"name": name}, "spec": spec}, nodeinfo.Numatopology)


def test_a_running_pod_counts_with_its_valid_requests() -> None:
    asks = {wellknown.VGPU_MEMORY: "lots"}
    state = cluster([node("n1", cpu=6)], pods=[pod("p", node="n1", cpu=1, requests=asks)]).state
    assert state.matrix.idle_rn[0, 0] == 5000


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_invalid_fields_stop_no_job_and_overcommit_no_node(data: st.DataObject) -> None:
    state, config = Cluster(), parse(CONF, builtin())
    status = {"qosClass": data.draw(st.sampled_from(["Guaranteed", "Burstable", ""]))}
    bad = gang(
        "bad", members=2, minimum=1, cpu=data.draw(st.sampled_from([1, 2, "500m"])), status=status,
        requests=data.draw(asks), annotations=data.draw(notes(OF_GROUPS)),
        pod_annotations=data.draw(notes(OF_PODS)), phase="Inqueue",
    )  # fmt: skip
    good = gang("good", members=2, cpu=1, phase="Inqueue")
    there = [
        pod(
            f"there-{n}", node="n1", group="bad", cpu=1, status=status, requests=data.draw(asks),
            annotations=data.draw(notes(OF_PODS)), labels=data.draw(notes(OF_PODS)),
            phase=data.draw(st.sampled_from(["Running", "Pending"])),
        )
        for n in range(2)
    ]  # fmt: skip
    zone = data.draw(st.sampled_from(["", "night", "day", "dusk"]))
    devices = {wellknown.VGPU_NUMBER: 8, "nvidia.com/gpu": 2}
    nodes = [
        node("n1", cpu=6, extra=devices, annotations=data.draw(notes(OF_NODES)),
             labels={wellknown.REVOCABLE_ZONE: zone} if zone else {}),
        node("n2", cpu=8, annotations=data.draw(notes(OF_NODES))),
    ]  # fmt: skip
    reading = Reading(data.draw(st.sampled_from([0.0, 50.0, 100.0])), 50.0, START)
    news: list[changes.Change] = [
        *(Put("Queue", each) for each in (queue("default"),)),
        *(Put("Node", each) for each in nodes),
        *(Put("Numatopology", data.draw(numa_topologies(each.name))) for each in nodes),
        *(Put("PodGroup", each.group) for each in (bad, good)),
        *(Put("Pod", each) for each in (*bad.pods, *good.pods, *there)),
        Measured({period: {"n1": reading} for period in (0, 300, 600)}),
    ]
    for change in news:
        changes.apply(state, change)
    plan = decide(state, config, START + 1)
    assert plan.failures == []
    bound = {bind.pod for bind in plan.binds}
    assert {"good-0", "good-1"} <= bound
    used: dict[str, float] = {"n1": 2000, "n2": 0}
    taken: dict[tuple[str, int], int] = {}
    for bind in plan.binds:
        task = state.tasks[bind.uid]
        used[bind.node] += float(task.klass.request_r[0])
        for numa, cpus in read_decision(bind.annotations.get(wellknown.TOPOLOGY_DECISION)).items():
            taken[bind.node, numa] = taken.get((bind.node, numa), 0) + cpus
    assert used["n1"] <= 6000
    assert used["n2"] <= 8000
    assert all(cpus <= 4 for cpus in taken.values())


def test_the_verdict_on_invalid_requests_does_not_depend_on_order() -> None:
    members = [pod("j-0", group="j", cpu="-1"), pod("j-1", group="j", requests={"memory": "lots"})]
    told = set()
    for order in (members, members[::-1]):
        made = gang("j", members=0, minimum=2).and_pods(*order)
        told.add(cluster([node("n0", cpu=4)], [made]).run().why("j"))
    assert len(told) == 1
    assert "pod j-0 has invalid requests" in told.pop()
