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
    """Base class of all plugins. See the module for an example and `hooks` for the hooks."""

    name: ClassVar[str] = ""
    per_node_methods: ClassVar[frozenset[str]] = frozenset()
    """Methods besides the hooks that a kind of plugin lets its subclasses define."""
    hooks: ClassVar[frozenset[str]] = frozenset()
    arguments_of: ClassVar[Mapping[str, Argument]] = {}
    ignored_arguments: ClassVar[Mapping[str, str]] = {}
    """Arguments that are taken and change nothing, and why."""
    essential: ClassVar[bool] = False
    """Whether tasks wait when it fails, rather than be placed without its word."""

    free_arguments: ClassVar[tuple[str, ...]] = ()
    """Beginnings of argument names that it reads from `raw` itself."""
    by_class: ClassVar[bool] = False
    """Whether its filters and scores depend on the task's class alone, not on its job or name.

    Then an answer given for one task is used for all equal ones of the cycle.
    """

    victims_by_class: ClassVar[bool] = False
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
    scheduler keeps account (`session.cluster.job_table.history`)."""
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
    """For plugins that think in single nodes: `fits(task, node)` and `score(task, node)`.

    Simple, and slow on large clusters: each is called once per node.
    """

    per_node_methods: ClassVar[frozenset[str]] = frozenset({"fits", "score"})

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
