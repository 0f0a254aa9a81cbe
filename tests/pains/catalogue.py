"""The catalogue of pains: what users of batch schedulers report, and the scenario of each.

`python -m tools.pains` writes it into docs/guides/from-volcano.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

REPOSITORIES: Final = {
    "volcano": "volcano-sh/volcano",
    "kueue": "kubernetes-sigs/kueue",
    "kai": "kai-scheduler/KAI-Scheduler",
    "yunikorn": "apache/yunikorn-core",
    "kube-batch": "kubernetes-sigs/kube-batch",
    "kubernetes": "kubernetes/kubernetes",
    "karpenter": "kubernetes-sigs/karpenter",
}


@dataclass(frozen=True)
class Pain:
    """One problem that is reported again and again."""

    title: str
    test: str
    """The name of its scenario, after the number."""
    issues: Mapping[str, tuple[int, ...]]
    """Issues and pull requests by project."""
    reported: str
    """What happens according to these reports."""
    reproduced: str = ""
    """The test of tests/fidelity in which the real Volcano does it; empty if none was run."""

    @property
    def cited(self) -> str:
        """The issues as the docstring of the scenario begins with them."""
        each = (f"{name} {', '.join(map(str, found))}" for name, found in self.issues.items())
        return "; ".join(each)


PAINS: Final = (
    Pain(
        "No usable answer why a job is pending",
        "no_usable_answer_why_a_job_is_pending",
        {"volcano": (3872, 2930, 3220, 604), "kueue": (2833,), "kai": (1731, 1434)},
        "the reason is a text such as `1/0 tasks in gang unschedulable`",
    ),
    Pain(
        "Pending although resources are free",
        "pending_although_resources_are_free",
        {"volcano": (2304, 2143, 1863, 1689), "kueue": (2391,)},
        "jobs that fit stay pending",
    ),
    Pain(
        "Only a restart of the scheduler helps",
        "only_a_restart_of_the_scheduler_helps",
        {"volcano": (1689, 1947, 3220, 2284)},
        "the state in memory drifts from the cluster",
    ),
    Pain(
        "Mutual reclaim for ever",
        "mutual_reclaim_for_ever",
        {"volcano": (3729, 4949, 561, 3869, 377)},
        "two queues evict each other's pods without end",
    ),
    Pain(
        "Fair-share preemption loops",
        "fair_share_preemption_loops",
        {"kueue": (3779, 7101, 6774, 14543, 12541)},
        "jobs of unequal queues preempt each other in a circle",
    ),
    Pain(
        "Victims are killed, and the preemptor does not run",
        "victims_are_killed_and_the_preemptor_does_not_run",
        {"volcano": (5022, 5011, 4925, 394), "kueue": (5243,)},
        "pods are evicted for a job that still fits nowhere",
    ),
    Pain(
        "A queue falls below its guarantee",
        "a_queue_falls_below_its_guarantee",
        {"yunikorn": (660, 636, 639, 658), "volcano": (3003, 3989)},
        "preemption or reclaim takes guaranteed resources",
    ),
    Pain(
        "Recreated victims preempt again",
        "recreated_victims_preempt_again",
        {"yunikorn": (937, 944)},
        "replicas that replace victims start a storm of preemptions",
    ),
    Pain(
        "Two gangs hold half each",
        "two_gangs_hold_half_each",
        {"volcano": (3373, 2083, 1387), "kueue": (6214,)},
        "two jobs hold a part each, and neither can start",
    ),
    Pain(
        "A gang is not repaired",
        "a_gang_is_not_repaired",
        {"volcano": (5805,)},
        "a started gang that lost a member waits behind newer jobs",
    ),
    Pain(
        "Admitted by sum, impossible by shape",
        "admitted_by_sum_impossible_by_shape",
        {"volcano": (665, 4617, 5006), "kueue": (4329, 5243, 4474)},
        "a job that fits on no node is admitted and blocks its queue",
    ),
    Pain(
        "A large job starves behind small ones",
        "a_large_job_starves_behind_small_ones",
        {"volcano": (2235, 2045, 748, 3095, 1901, 947)},
        "small jobs take every resource that becomes idle",
    ),
    Pain(
        "The order depends on the plugin",
        "the_order_depends_on_the_plugin",
        {"volcano": (4812, 3990)},
        "starvation and priority mean something else in each plugin",
    ),
    Pain(
        "Webhook timeouts stop pod creation",
        "webhook_timeouts_stop_pod_creation",
        {"volcano": (3358, 3318)},
        "each pod of a large job waits for a webhook",
    ),
    Pain(
        "Webhook down, cluster down",
        "webhook_down_cluster_down",
        {"volcano": (3734, 3237, 704)},
        "plain pods cannot be created while the webhooks are down",
    ),
    Pain(
        "Throughput far below kube-scheduler",
        "throughput_far_below_kube_scheduler",
        {"volcano": (2460, 1740, 662), "kube-batch": (930,)},
        "few pods per second are placed",
    ),
    Pain(
        "Cycle time explodes at size",
        "cycle_time_explodes_at_size",
        {"kai": (315, 1850, 1809)},
        "most of a cycle is spent on a copy of the cluster",
    ),
    Pain(
        "Memory grows with every job",
        "memory_grows_with_every_job",
        {"volcano": (3205, 4745, 2554, 3597), "kueue": (3818, 4266)},
        "caches and series of metrics keep deleted jobs",
    ),
    Pain(
        "Status drifts from truth",
        "status_drifts_from_truth",
        {"volcano": (4584, 4270, 3112, 2684, 2657)},
        "amounts and phases differ from the pods",
    ),
    Pain(
        "Corner cases of the job lifecycle",
        "job_lifecycle_corner_cases",
        {"volcano": (5385, 1866, 4743, 2918, 1718, 1099, 436)},
        "jobs hang after a restart, an abort becomes a restart, pods outlive their job",
    ),
    Pain(
        "One bad value crashes everything",
        "one_bad_value_crashes_everything",
        {"volcano": (5806, 4421, 5812, 1001, 3710, 4499)},
        "the scheduler ends again and again by one wrong argument",
    ),
    Pain(
        "GPU sharing books wrong",
        "gpu_sharing_books_wrong",
        {"volcano": (3616, 2859, 3037, 1782, 1818), "kai": (848, 2153, 65)},
        "three pods of 12 GiB share a GPU of 24 GiB",
    ),
    Pain(
        "A doomed pod wins every cycle",
        "a_doomed_pod_wins_every_cycle",
        {"kai": (2075,)},
        "a binding that is always refused starves other pods",
    ),
    Pain(
        "Autoscalers buy nodes for pods without quota",
        "autoscalers_buy_nodes_for_pods_without_quota",
        {"volcano": (3910, 4710, 4030, 2558), "karpenter": (742,), "kai": (1615,)},
        "pods above a quota look like pods without a node",
    ),
    Pain(
        "No way to try before you buy",
        "no_way_to_try_before_you_buy",
        {"volcano": (4276, 4738, 3822, 4459, 4740), "kubernetes": (58242,), "yunikorn": (556,)},
        "a change of configuration cannot be tried without a cluster",
    ),
)
"""Pain number n is PAINS[n - 1]."""
