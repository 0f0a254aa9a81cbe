"""The base class of plugins.

    class CoolNodes(Plugin, name="cool-nodes"):
        '''Keep work off hot nodes, and prefer the coolest.'''

        weight: float = 1.0          # argument "cool-nodes.weight" in the tiers file
        limit: float = 90.0

        def open(self, session):
            self.heat = session.nodes.annotation("example.com/celsius", float, default=50.0)

        def predicate(self, task, nodes):
            yield self.heat > self.limit, "node(s) were too hot"

        def node_order(self, task, nodes):
            return self.weight * (100.0 - self.heat)

Defining a method registers it as a hook. A public method that is no hook, or that takes other
parameters than its hook, is refused when the class is defined. Annotated attributes are arguments.
Hooks see all nodes at once; `PerNodePlugin` calls simpler methods once per node. A plugin that
raises is left out for the rest of the cycle.

`hooks` lists the hooks with their parameters and results.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.arguments import Argument, arguments_of
from hekla.scheduler.framework.hooks import HOOKS
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.state.dimensions import BoolArray, FloatArray

if TYPE_CHECKING:
    from hekla.scheduler.state.model import Node, Task

_OTHER_METHODS: Final = frozenset({"configure", "unknown_arguments"})


class Plugin:
    """Base class of all plugins. See `hooks` for the hooks.

    >>> class Oldest(Plugin, name="oldest"):
    ...     def job_order(self, job):
    ...         return job.created
    >>> sorted(Oldest.hooks)
    ['job_order']
    """

    name: ClassVar[str] = ""
    per_node_methods: ClassVar[frozenset[str]] = frozenset()
    """Methods besides the hooks that a kind of plugin lets its subclasses define."""
    hooks: ClassVar[frozenset[str]] = frozenset()
    arguments_of: ClassVar[Mapping[str, Argument]] = {}
    ignored_arguments: ClassVar[Mapping[str, str]] = {}
    """Arguments that have no effect, with the reason."""
    essential: ClassVar[bool] = False
    """Whether tasks stay pending when the plugin fails, instead of being placed without it."""

    free_arguments: ClassVar[tuple[str, ...]] = ()
    """Prefixes of argument names that the plugin reads from `raw` itself."""
    by_class: ClassVar[bool] = False
    """Whether filters and scores depend on the task's class alone, not on its job or name.

    Then an answer for one task is reused for all equal tasks of the cycle.
    """

    victims_by_class: ClassVar[bool] = False
    """Whether votes on victims depend only on the preemptor's queue, priority and class, and while
    pods are evicted change only from yes to no.

    Then eviction costs are computed once for all jobs with equal tasks.
    """

    guards_queues: ClassVar[bool] = False
    """Whether a vote on victims counts in every tier: it keeps queues at their deserved share.

    Votes of other plugins count only in the first tier that has one.
    """

    protects: ClassVar[bool] = False
    """Whether `unified_evictable` depends on the candidates alone, not on the preemptor.

    Then it is also called, with None as context, for pods that are moved to other nodes.
    """

    raw: Mapping[str, Any] = {}
    """The arguments as written, for plugins whose argument names are not fixed."""
    switches: Mapping[str, bool] = {}
    """The enable switches of the tier entry, by YAML name."""

    half_life_s: float | None = None
    """The half-life of usage, for a plugin that needs usage over time. Then the scheduler keeps the
    history (`session.cluster.job_table.history`)."""
    load_period_s: int | None = None
    """The period of mean node loads that the plugin needs even if no job is pending. Then loads are
    polled (`session.cluster.node_table.loads`), and every reading starts a cycle."""

    def __init_subclass__(cls, *, name: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if name is not None:
            cls.name = name
        cls.hooks = _hooks_of(cls)
        cls.arguments_of = arguments_of(cls, cls.name, Plugin)

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
        """Return arguments that the plugin does not have, each with the closest name."""
        known = [key for argument in cls.arguments_of.values() for key in argument.keys]
        found = []
        for key in raw:
            if key not in known and not key.startswith(cls.free_arguments or "\0"):
                close = difflib.get_close_matches(key, known, n=1)
                found.append(f"{key!r}" + (f" (did you mean {close[0]!r}?)" if close else ""))
        return found

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        """Set arguments from a tiers file; PluginError names the key."""
        self.raw, self.switches = raw, switches
        for attribute, argument in self.arguments_of.items():
            for key in argument.keys:
                if key in raw:
                    setattr(self, attribute, argument.convert(raw[key], key))
                    break


def _hooks_of(cls: type[Plugin]) -> frozenset[str]:
    """Return the hooks that a class implements; PluginError names a method that is none."""
    allowed = _OTHER_METHODS | HOOKS.keys() | cls.per_node_methods
    for attribute, value in vars(cls).items():
        if attribute.startswith("_") or not inspect.isfunction(value):
            continue
        if attribute not in allowed:
            close = difflib.get_close_matches(attribute, HOOKS, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise PluginError(
                f"{cls.__name__}.{attribute} is no hook; {hint}Hooks are: {', '.join(HOOKS)}. "
                "Begin the name with an underscore if it is a helper."
            )
        if attribute in HOOKS and not HOOKS[attribute].accepts(value):
            raise PluginError(
                f"{cls.__name__}.{attribute} cannot be called as {HOOKS[attribute]}; "
                "give it these parameters"
            )
    return frozenset(name for name in HOOKS if any(name in vars(base) for base in cls.__mro__[:-1]))


class PerNodePlugin(Plugin):
    """A plugin that looks at one node at a time: `fits(task, node)` and `score(task, node)`.

        >>> class EvenNodes(PerNodePlugin, name="even-nodes"):
        ...     def fits(self, task, node):
        ...         return None if node.name[-1] in "02468" else "node(s) are odd"

    Simple, and slow on large clusters: each is called once per node.
    """

    per_node_methods: ClassVar[frozenset[str]] = frozenset({"fits", "score"})

    def fits(self, task: Task, node: Node) -> str | None:
        """Return why the node is not feasible for the task, or None."""
        return None

    def score(self, task: Task, node: Node) -> float:
        """Return the score of the node for the task."""
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
