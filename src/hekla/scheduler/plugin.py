"""How to change what the scheduler decides: write a class, define the hooks you care about.

    class CoolNodes(Plugin, name="cool-nodes"):
        '''Keep work off hot machines, and prefer the coolest.'''

        weight: float = 1.0          # argument "cool-nodes.weight" in the tiers file
        limit: float = 90.0

        def open(self, session):
            self.heat = session.nodes.annotation("example.com/celsius", float, default=50.0)

        def predicate(self, task, nodes):
            yield self.heat > self.limit, "node(s) were too hot"

        def node_order(self, task, nodes):
            return self.weight * (100.0 - self.heat)

Defining a method is registering it; a public method that is no hook is refused when the class is
made. Annotated attributes are arguments. Hooks see all nodes at once; whoever thinks in single
nodes derives from `PerNodePlugin`. A plugin that raises loses its vote for the rest of the cycle.
"""

from __future__ import annotations

import difflib
import inspect
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import numpy as np

from hekla.scheduler.dimensions import BoolArray, FloatArray, IntArray
from hekla.scheduler.nodes import Nodes
from hekla.units.durations import DurationError, parse_duration

if TYPE_CHECKING:
    from hekla.scheduler.model import Job, Node, Task


class Vote:
    """What a voter says; None abstains."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


PERMIT: Final = Vote("PERMIT")
REJECT: Final = Vote("REJECT")


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a job cannot be scheduled as it is."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Context:
    """For whom whole gangs may have to leave, and by which right."""

    kind: Literal["preempt", "reclaim"]
    job: Job


@dataclass(frozen=True, slots=True)
class Normalized:
    """A score that only counts relative to the other candidates, scaled to 0..100 × weight.

    `reverse` gives 100 to the smallest value, as for counts of things to avoid.
    """

    raw_n: FloatArray
    weight: float
    reverse: bool = False
    between: bool = False
    """Scale from the smallest to the largest value, rather than from zero to the largest."""
    filling: Callable[[IntArray, IntArray], FloatArray] | None = None
    """Where it changes as nodes fill: the values of nodes (first) with so many tasks more (second),
    as of when it is called; `raw_n` is not read then."""

    def raw(self, nodes: IntArray, copies: IntArray) -> FloatArray:
        return self.raw_n[nodes] if self.filling is None else self.filling(nodes, copies)


class InTurn:
    """A score that depends on where the tasks before went, told for tasks placed one after another.

    It is made for equal tasks of one role as things are when it is asked for. It must give the same
    as one made anew after each of them, only with less work; and nothing else may happen meanwhile.
    A plugin that answers with one says by `sets_apart` for which tasks.
    """

    def score(self, task: Task) -> FloatArray:
        """Of every node, for the task whose turn it is; nobody else writes to the array."""
        raise NotImplementedError

    def came(self, task: Task, node: int) -> None:
        """It was put on this node, and another's turn comes."""
        raise NotImplementedError

    def likely(self) -> Sequence[int]:
        """Nodes that may well be chosen more than once: a hint, for looking at them together."""
        return ()


class PluginError(Exception):
    """A plugin is written or configured wrongly."""


def duration_s(key: str, text: str) -> float:
    """An argument such as 1h30m in seconds; PluginError names the key."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise PluginError(f"{key} is refused: {error}") from None


class Plugin:
    """Base of all plugins. The hooks, with what they get and give:

    open(session), close(session)               begin and end of a cycle
    job_order(job), queue_order(queue), task_order(task)    sort keys: smaller goes first
    job_valid(job) -> Invalid | None
    job_ready(job) -> bool;  job_starving(job) -> bool
    job_pipelined(job), job_enqueueable(job) -> PERMIT | REJECT | None
    job_enqueued(job)                           it was let in
    overused(queue) -> bool
    allocatable(queue, task) -> bool | int      may it, or how many equal tasks may
    preemptive(queue, task) -> bool
    pre_predicate(task) -> str | None           a reason why no node will do
    predicate(task, nodes) -> (mask, reason)…   where it is true, the node will not do
    max_copies(task, nodes) -> array            how many more equal tasks each node takes;
                                                or a list of (array, reason)
    one_by_one(task) -> bool                    placing one changes other nodes' answers
    node_order(task, nodes) -> array            score of each node, by itself
    batch_node_order(task, nodes, candidates) -> array | Normalized | InTurn
                                                or a list of these
    best_node(task, candidates, scores) -> int | None
    confine(task) -> array | None               nodes (ascending) outside which it must not go, as
                                                things are now; asked at every look at the nodes
    narrow(task, count, copies) -> array | None nodes among which the next of so many should be;
                                                copies is what each node takes
    domain_order(task) -> array | None          score of each node by its surroundings, over all
                                                nodes; asked at every look, not for every copy
    domains(job, subgroup, tasks, missing, inside) -> Choice | None    where so many may be tried
    domains_to_clear(job, tasks) -> [Domain] | None             where others could leave for it
    sets_apart(task) -> bool                    its answers for this task hold for its job alone
    preemptable(task, candidates), reclaimable(task, candidates),
    unified_evictable(context, candidates) -> mask | None
    fits_without(task, node, options) -> mask | None    for each option, a list of tasks on a node:
                                                whether the node takes the task once those have left
                                                and others that leave; asked where resources are not
                                                all that a task may lack
    victim_tasks(tasks) -> mask | None                 of those that run, or are bound and will
    victim_queue_order(queue, preemptor) -> key
    allocated(task, nodes), deallocated(task, nodes)   tasks like this one came to, left nodes
    bind_annotations(tasks, nodes) -> [mapping | None] what to write on each with its binding; the
                                                nodes are the very array that `allocated` got
    queue_figures() -> {queue: QueueFigures}           what it worked out for queues, for metrics
    """

    name: ClassVar[str] = ""
    hooks: ClassVar[frozenset[str]] = frozenset()
    arguments_of: ClassVar[Mapping[str, Argument]] = {}
    unread: ClassVar[Mapping[str, str]] = {}
    """Arguments that are taken and change nothing, and why."""
    essential: ClassVar[bool] = False
    """Whether tasks wait when it fails, rather than be placed without its word."""

    free_arguments: ClassVar[tuple[str, ...]] = ()
    """Beginnings of argument names that it reads from `raw` itself."""
    by_class: ClassVar[bool] = False
    """Whether its filters and scores depend on the task's class alone, not on its job or name.

    Then an answer given for one task is used for all equal ones of the cycle.
    """

    votes_by_kind: ClassVar[bool] = False
    """Whether its word on victims depends on who asks by queue, priority and class alone, and while
    pods leave only turns from yes to no.

    Then what it would cost to clear a node is worked out once for all jobs that ask for the same.
    """

    protects: ClassVar[bool] = False
    """Whether its `unified_evictable` is about the candidates alone, whoever asks.

    Then it is asked, with None for the context, also of pods that would only move elsewhere.
    """

    raw: Mapping[str, Any] = {}
    """Its arguments as written, for plugins whose argument names are not fixed."""
    switches: Mapping[str, bool] = {}
    """The enable switches of its tier entry, by YAML name."""

    half_life_s: float | None = None
    """If it goes by what was had over time: after how long that shall count half. Then the
    scheduler keeps account (`session.cluster.history`)."""
    load_period_s: int | None = None
    """If it looks at how busy nodes are, though no job waits: over how long that shall be a mean.
    Then such readings are fetched (`session.cluster.loads`), and each lets a cycle begin."""

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name is not None:
            cls.name = name
        cls.hooks = _hooks_of(cls)
        cls.arguments_of = _arguments_of(cls)

    def __init__(self, **arguments: Any) -> None:
        for attribute, argument in self.arguments_of.items():
            if isinstance(argument.default, list | dict):
                setattr(self, attribute, type(argument.default)(argument.default))
        for attribute, value in arguments.items():
            if attribute not in self.arguments_of:
                raise PluginError(
                    f"plugin {self.name!r} has no argument {attribute!r}; "
                    f"it has: {', '.join(self.arguments_of) or 'none'}"
                )
            setattr(self, attribute, self.arguments_of[attribute].convert(value))

    @classmethod
    def unknown_arguments(cls, raw: Mapping[str, Any]) -> list[str]:
        """Arguments that it does not read, each with a guess at what was meant."""
        known = [key for argument in cls.arguments_of.values() for key in argument.keys]
        found = []
        for key in raw:
            if key not in known and not key.startswith(cls.free_arguments or "\0"):
                close = difflib.get_close_matches(key, known, n=1)
                found.append(f"{key!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
        return found

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        """Take arguments as a tiers file gives them; raises PluginError naming the key."""
        self.raw, self.switches = raw, switches
        for attribute, argument in self.arguments_of.items():
            for key in argument.keys:
                if key in raw:
                    setattr(self, attribute, argument.convert(raw[key], key))
                    break


# --- hooks ------------------------------------------------------------------------------------

HOOKS: Final[tuple[str, ...]] = (
    "open",
    "close",
    "job_order",
    "queue_order",
    "task_order",
    "job_valid",
    "job_ready",
    "job_starving",
    "job_pipelined",
    "job_enqueueable",
    "job_enqueued",
    "overused",
    "allocatable",
    "preemptive",
    "pre_predicate",
    "predicate",
    "max_copies",
    "one_by_one",
    "node_order",
    "batch_node_order",
    "best_node",
    "confine",
    "narrow",
    "domain_order",
    "domains",
    "domains_to_clear",
    "sets_apart",
    "preemptable",
    "reclaimable",
    "unified_evictable",
    "fits_without",
    "victim_tasks",
    "victim_queue_order",
    "allocated",
    "deallocated",
    "bind_annotations",
    "queue_figures",
)

_BASE: Final = frozenset({"configure", "unknown_arguments"})

# Volcano's switch for each hook, and its default. Hooks without one are always asked.
SWITCHES: Final[Mapping[str, str]] = {
    "job_order": "enableJobOrder",
    "queue_order": "enableQueueOrder",
    "task_order": "enableTaskOrder",
    "job_ready": "enableJobReady",
    "job_pipelined": "enableJobPipelined",
    "job_starving": "enableJobStarving",
    "job_enqueueable": "enableJobEnqueued",
    "job_enqueued": "enableJobEnqueued",
    "preemptable": "enablePreemptable",
    "reclaimable": "enableReclaimable",
    "preemptive": "enablePreemptive",
    "pre_predicate": "enablePredicate",
    "predicate": "enablePredicate",
    "max_copies": "enablePredicate",
    "one_by_one": "enablePredicate",
    "fits_without": "enablePredicate",
    "best_node": "enableBestNode",
    "confine": "enabledHyperNodeGradient",
    "narrow": "enabledHyperNodeGradient",
    "domains": "enabledHyperNodeGradient",
    "domains_to_clear": "enabledHyperNodeGradient",
    "domain_order": "enableNodeOrder",
    "node_order": "enableNodeOrder",
    "batch_node_order": "enableNodeOrder",
    "victim_tasks": "enabledVictim",
    "overused": "enabledOverused",
    "allocatable": "enabledAllocatable",
}
ALL_SWITCHES: Final[Mapping[str, bool]] = {
    **dict.fromkeys(SWITCHES.values(), True),
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


def _hooks_of(cls: type[Plugin]) -> frozenset[str]:
    allowed = _BASE | set(HOOKS)
    if any(base.__name__ == "PerNodePlugin" for base in cls.__mro__):
        allowed |= {"fits", "score"}
    for attribute, value in vars(cls).items():
        if attribute.startswith("_") or not inspect.isfunction(value) or attribute in allowed:
            continue
        close = difflib.get_close_matches(attribute, HOOKS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise PluginError(
            f"{cls.__name__}.{attribute} is no hook; {hint}Hooks are: {', '.join(HOOKS)}. "
            "Begin the name with an underscore if it is a helper."
        )
    return frozenset(hook for hook in HOOKS if any(hook in vars(base) for base in cls.__mro__[:-1]))


# --- arguments --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Key:
    """The name of an argument in a tiers file, where it is not `plugin.attribute`."""

    name: str


_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a plugin: what it is called, and what it may be."""

    keys: tuple[str, ...]
    kind: type
    default: Any

    def convert(self, value: Any, key: str | None = None) -> Any:
        """The value as the plugin wants it.

        More forgiving than Volcano, which ignores a quoted number: "5" counts as 5.
        """
        name = key or self.keys[0]
        converter = _CONVERTERS.get(self.kind)
        try:
            if converter is None:
                if not isinstance(value, self.kind):
                    raise ValueError
                return value
            return converter(value)
        except (ValueError, TypeError):
            wanted = _KIND_NAMES.get(self.kind, self.kind.__name__)
            raise PluginError(f"{name} must be {wanted}, and {value!r} is not") from None


def _arguments_of(cls: type[Plugin]) -> Mapping[str, Argument]:
    found: dict[str, Argument] = {}
    for base in reversed(cls.__mro__):
        if base is Plugin or not issubclass(base, Plugin):
            continue
        for attribute in vars(base).get("__annotations__", {}):
            default = vars(base).get(attribute, _MISSING)
            if attribute.startswith("_") or default is _MISSING:
                continue
            hint = _hint(base, attribute)
            if typing.get_origin(hint) is ClassVar:
                continue
            found[attribute] = _argument(cls.name, attribute, hint, default)
    return found


def _hint(cls: type, attribute: str) -> Any:
    try:
        return typing.get_type_hints(cls, include_extras=True).get(attribute)
    except NameError as error:
        raise PluginError(
            f"{cls.__name__}: an annotation cannot be read: {error}; import the name at the top "
            "of the module, not under TYPE_CHECKING"
        ) from None


def _argument(plugin: str, attribute: str, hint: Any, default: Any) -> Argument:
    keys: tuple[str, ...] = (f"{plugin}.{attribute}", attribute, attribute.replace("_", "-"))
    kind = hint
    if typing.get_origin(hint) is typing.Annotated:
        kind, *extras = typing.get_args(hint)
        keys = tuple(extra.name for extra in extras if isinstance(extra, Key)) or keys
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type):
        origin = type(default)
    return Argument(keys, origin, default)


def _to_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text in ("1", "t", "true"):
        return True
    if text in ("0", "f", "false"):
        return False
    raise ValueError(text)


def _to_int(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError(value)
    return int(value)


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(value)
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(value)
    return number


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value


_CONVERTERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    bool: _to_bool,
    int: _to_int,
    float: _to_float,
    str: _to_str,
}
_KIND_NAMES: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "a map",
}


# --- thinking in single nodes ---------------------------------------------------------------


class PerNodePlugin(Plugin):
    """For plugins that think in single nodes: `fits(task, node)` and `score(task, node)`.

    Simple, and slow on large clusters: each is called once per node.
    """

    def fits(self, task: Task, node: Node) -> str | None:
        """A reason why the task must not go to the node, or None."""
        return None

    def score(self, task: Task, node: Node) -> float:
        """How good the node is for the task."""
        return 0.0

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        masks: dict[str, BoolArray] = {}
        for i, node in enumerate(nodes.all):
            reason = self.fits(task, node)
            if reason is not None:
                masks.setdefault(reason, np.zeros(len(nodes.all), dtype=bool))[i] = True
        for reason in sorted(masks):
            yield masks[reason], reason

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        return np.asarray([self.score(task, node) for node in nodes.all], dtype=np.float64)


# --- registry ---------------------------------------------------------------------------------


class Registry:
    """Plugins by name."""

    def __init__(self, plugins: Iterable[type[Plugin]] = ()) -> None:
        self._known: dict[str, type[Plugin]] = {}
        for plugin in plugins:
            self.add(plugin)

    def add(self, plugin: type[Plugin]) -> None:
        if not plugin.name:
            raise PluginError(f"{plugin.__name__} needs a name: class X(Plugin, name='x')")
        self._known[plugin.name] = plugin

    def get(self, name: str) -> type[Plugin] | None:
        return self._known.get(name)

    def names(self) -> Sequence[str]:
        return sorted(self._known)

    def suggestion(self, name: str) -> str:
        """`; did you mean 'x'?` or a list of what there is."""
        close = difflib.get_close_matches(name, self._known, n=1)
        return f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(self.names())}"
