"""Whatever objects say, a cycle ends, raises nothing and leaves the others alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api import core, scheduling
from hekla.api.meta import convert
from hekla.testing import cluster, gang, node, pod, queue

quantities = st.sampled_from(
    ["1", "-1", "0", "500m", "1e30", "-1e30", "lots", "", "1Gi", "0.0001", 3, -2, 1.5]
)
names = st.sampled_from(
    ["cpu", "memory", "pods", "nvidia.com/gpu", "count/x", "x", "", "hugepages-2Mi"]
)
impossible = st.dictionaries(names, st.sampled_from(["-1", "1e30", "lots", ""]), max_size=2)
amounts = st.dictionaries(names, quantities, max_size=3)
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
def test_nonsense_never_stops_a_cycle_nor_the_job_beside_it(data: st.DataObject) -> None:
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
