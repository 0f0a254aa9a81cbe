"""The extension points of the scheduler: one typed specification per hook.

Each function below is a specification: its name, its parameters, its result and its rule. It has no
body. A plugin implements a hook by defining a method of the same name with the same parameters. The
scheduler calls hooks through `Tiers` with these specifications, so the type checker compares every
call with them, and a plugin class whose method takes other parameters is refused at definition.

`docs/reference/hooks.md` is generated from this module.
"""

# Specifications have no bodies.
# mypy: disable-error-code="empty-body"
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple

from hekla.scheduler.framework.answers import (
    EvictionContext,
    Invalid,
    Normalized,
    SequentialScore,
    Vote,
)
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plan import QueueMetrics
from hekla.scheduler.state.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.state.model import Job, Queue, Task
from hekla.scheduler.state.subgroups import SubGroup
from hekla.scheduler.state.topology import Choice, Domain

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

SortKey: TypeAlias = Any
"""Any value that compares with the keys of the same plugin. The smallest comes first."""
Limit: TypeAlias = "IntArray | FloatArray"
Score: TypeAlias = "FloatArray | Normalized | SequentialScore"


class Hook(Generic[R, *Ts]):
    """The specification of one hook. Compare hooks by identity."""

    __slots__ = ("doc", "name", "parameters", "returns", "switch")

    def __init__(self, function: Callable[[*Ts], R], switch: str) -> None:
        signature = inspect.signature(function)
        self.name = function.__name__
        self.switch = switch
        """The enable switch of Volcano's tiers that turns the hook off; empty for none."""
        self.parameters = tuple(signature.parameters.values())
        self.returns = str(signature.return_annotation)
        self.doc = inspect.getdoc(function) or ""

    def __repr__(self) -> str:
        return f"<hook {self}>"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(each.name for each in self.parameters)})"

    def accepts(self, method: Callable[..., Any]) -> bool:
        """Tell whether a plugin's method, with self, can be called as the hook is."""
        try:
            inspect.signature(method).bind(None, *self.parameters)
        except TypeError:
            return False
        return True


AnyHook: TypeAlias = "Hook[Any, *tuple[Any, ...]]"
HOOKS: Final[dict[str, AnyHook]] = {}
"""Every hook by name, in the order of this module."""


def hook(switch: str = "") -> Callable[[Callable[[*Ts], R]], Hook[R, *Ts]]:
    """Turn a function into the specification of a hook."""

    def specify(function: Callable[[*Ts], R]) -> Hook[R, *Ts]:
        made = Hook(function, switch)
        HOOKS[made.name] = made
        return made

    return specify


# --- session ----------------------------------------------------------------------------------


@hook()
def open(session: Session) -> None:
    """Called when a session opens, before any other hook. Compute what the cycle needs here."""


@hook()
def close(session: Session) -> None:
    """Called when a session closes without an error."""


# --- order ------------------------------------------------------------------------------------


@hook("enableJobOrder")
def job_order(job: Job) -> SortKey:
    """Return the sort key of a job within its queue. Keys of all plugins are joined by tier."""


@hook("enableQueueOrder")
def queue_order(queue: Queue) -> SortKey:
    """Return the sort key of a queue. Keys of all plugins are joined by tier."""


@hook("enableTaskOrder")
def task_order(task: Task) -> SortKey:
    """Return the sort key of a task within its job. Keys of all plugins are joined by tier."""


# --- jobs -------------------------------------------------------------------------------------


@hook()
def job_valid(job: Job) -> Invalid | None:
    """Return why a job cannot be scheduled, or None. The first reason counts."""


@hook("enableJobReady")
def job_ready(job: Job) -> bool:
    """Tell whether enough tasks of a job have a node. All plugins must agree."""


@hook("enableJobStarving")
def job_starving(job: Job) -> bool:
    """Tell whether a job may preempt or reclaim. The first tier with an answer decides."""


@hook("enableJobPipelined")
def job_pipelined(job: Job) -> Vote | None:
    """Vote on whether a job keeps its pipelined tasks until the end of the cycle."""


@hook("enableJobEnqueued")
def job_enqueueable(job: Job) -> Vote | None:
    """Vote on whether a PodGroup moves from Pending to Inqueue."""


@hook()
def entitled(job: Job) -> bool:
    """Tell whether its queue deserves the minimum of a job that is not enqueued yet.

    Then reclaim can free resources for it, and a full cluster is no reason to keep it out.
    """


@hook()
def job_unplaceable(job: Job) -> None:
    """Called before enqueue for a job that is Inqueue and fits on no empty nodes.

    What it reserves is no reason to keep other jobs out.
    """


@hook("enableJobEnqueued")
def job_enqueued(job: Job) -> None:
    """Called after a PodGroup moved to Inqueue."""


@hook()
def job_notes(job: Job) -> Sequence[str]:
    """Return remarks for the verdict of a pending job, such as settings without effect."""


@hook()
def protection_notes(job: Job) -> Sequence[str]:
    """Return remarks on victims that this plugin protected from a job that could not preempt."""


# --- queues -----------------------------------------------------------------------------------


@hook("enabledOverused")
def overused(queue: Queue) -> bool:
    """Tell whether a queue uses its share. One plugin is enough; its jobs are skipped."""


@hook("enabledAllocatable")
def allocatable(queue: Queue, task: Task) -> bool | int:
    """Return how many tasks equal to this one the queue may allocate; a bool means one or none."""


@hook("enablePreemptive")
def preemptive(queue: Queue, task: Task) -> bool:
    """Tell whether a queue may reclaim for a task. All plugins must agree."""


@hook()
def queue_limit(queue: Queue) -> FloatArray:
    """Return the most that a queue may allocate, by resource row. Used in verdicts."""


@hook()
def queue_metrics() -> Mapping[str, QueueMetrics]:
    """Return what the plugin computed for each queue, for the metrics endpoint."""


# --- filters ----------------------------------------------------------------------------------


@hook("enablePredicate")
def pre_predicate(task: Task) -> str | None:
    """Return why no node is feasible for a task, or None."""


@hook("enablePredicate")
def predicate(task: Task, nodes: Nodes) -> Iterable[tuple[BoolArray, str]]:
    """Yield masks of infeasible nodes, each with the reason. The masks are over all nodes."""


@hook("enablePredicate")
def node_capacity(task: Task, nodes: Nodes) -> Limit | Sequence[tuple[Limit, str]] | None:
    """Return how many more tasks equal to this one fit on each node of the view.

    A list gives several limits, each with the reason that is reported when it is reached.
    """


@hook("enablePredicate")
def affects_other_nodes(task: Task) -> bool:
    """Tell whether placing the task changes filters or scores of other nodes (pod affinity)."""


@hook("enabledHyperNodeGradient")
def restrict_nodes(task: Task) -> IntArray | None:
    """Return the only nodes (ascending) that the task may use now, or None for all.

    Called for every search, so it must be cheap.
    """


@hook("enabledHyperNodeGradient")
def prefer_nodes(task: Task, count: int, capacity_n: IntArray) -> IntArray | None:
    """Return the nodes on which to place the next of `count` tasks first, or None.

    `capacity_n` is how many such tasks each node takes.
    """


# --- scores -----------------------------------------------------------------------------------


@hook("enableNodeOrder")
def node_order(task: Task, nodes: Nodes) -> FloatArray:
    """Return the score of each node of the view. It depends on that node alone."""


@hook("enableNodeOrder")
def batch_node_order(
    task: Task, nodes: Nodes, candidates: IntArray
) -> Score | Sequence[Score] | None:
    """Return scores that depend on the set of candidates, over all nodes."""


@hook("enableNodeOrder")
def domain_order(task: Task) -> FloatArray | None:
    """Return a score of each node by its network domain, over all nodes.

    Called once per search, not once per task.
    """


@hook("enableBestNode")
def best_node(task: Task, candidates: IntArray, score: FloatArray) -> int | None:
    """Return the node to use of the candidates, or None to take the highest score."""


@hook()
def job_specific(task: Task) -> bool:
    """Tell whether the plugin's filters or scores for the task depend on its job."""


# --- network domains --------------------------------------------------------------------------


@hook("enabledHyperNodeGradient")
def domains(
    job: Job, subgroup: SubGroup | None, tasks: Sequence[Task], missing: int, inside: Domain | None
) -> Choice | None:
    """Return the network domains in which to try `missing` tasks, best first."""


@hook("enabledHyperNodeGradient")
def domains_to_clear(job: Job, tasks: Sequence[Task]) -> list[Domain] | None:
    """Return the network domains in which to look for victims, best first."""


# --- victims ----------------------------------------------------------------------------------


@hook("enabledAllocatable")
def leftover(queue: Queue, task: Task) -> int:
    """Return how many such tasks the queue may allocate after every queue had its turn.

    It replaces `allocatable` of the plugin for idle resources that no queue may use otherwise.
    """


@hook("enablePreemptable")
def preemptable(task: Task, candidates: Sequence[Task]) -> BoolArray | None:
    """Return which candidates a task may preempt. Plugins of one tier are intersected."""


@hook("enableReclaimable")
def reclaimable(task: Task, candidates: Sequence[Task]) -> BoolArray | None:
    """Return which candidates a task may reclaim. Plugins of one tier are intersected."""


@hook()
def unified_evictable(
    context: EvictionContext | None, candidates: Sequence[Task]
) -> BoolArray | None:
    """Return which candidates may be evicted for a gang; None as context means to move pods."""


@hook("enablePredicate")
def fits_after_eviction(
    task: Task, node: int, victim_sets: Sequence[Sequence[Task]]
) -> BoolArray | None:
    """Return, for each set of victims on a node, whether the task fits once they terminated.

    Implement it where more than resource amounts decides, such as devices.
    """


@hook("enablePredicate")
def depends_on_pods(task: Task) -> bool:
    """Tell whether pods on a node decide if it is feasible for the task, so evictions may help.

    Then `predicate` is also called with `nodes.is_future`, where releasing pods are gone, and with
    `nodes.is_without_pods`, where no pod counts. A plugin that has this hook is asked
    `fits_after_eviction` for such tasks only, and on nodes with as many pods as they may have.
    """


@hook("enabledVictim")
def victim_tasks(tasks: Sequence[Task]) -> BoolArray | None:
    """Return which bound or running tasks to evict without a preemptor (action shuffle)."""


@hook()
def victim_queue_order(queue: Queue | None, preemptor: Queue | None) -> SortKey:
    """Return the sort key of a victim's queue for a preemptor's queue."""


# --- placement --------------------------------------------------------------------------------


@hook()
def allocated(task: Task, nodes: IntArray) -> None:
    """Called after tasks equal to this one were placed on nodes, tentatively or not."""


@hook()
def deallocated(task: Task, nodes: IntArray) -> None:
    """Called after tasks equal to this one were evicted or their placement was rolled back."""


@hook()
def bind_annotations(
    tasks: Sequence[Task], nodes: IntArray
) -> Sequence[Mapping[str, str] | None] | None:
    """Return annotations to write with the binding of each task.

    `nodes` is the very array that `allocated` received.
    """


SWITCHES: Final[Mapping[str, bool]] = {
    **{each.switch: True for each in HOOKS.values() if each.switch},
    "enableHierarchy": False,
    "enabledClusterOrder": False,
    "enabledNamespaceOrder": False,
    "enableTargetJob": True,
    "enableReservedNodes": True,
    "enabledHyperNodeOrder": True,
    "enabledSubJobReady": True,
    "enabledSubJobPipelined": True,
    "enabledSubJobOrder": True,
}
"""Every enable switch of a tier entry, with its default."""
