"""volcano-scheduler.conf: the actions, and the tiers of plugins with their arguments.

The format is Volcano's, with one difference: an error refuses the file and names its line, and the
last valid configuration stays. Volcano skips an unknown plugin, so a misspelt `gang` turns gang
scheduling off silently. A plugin of Volcano that is not registered is skipped with a warning; all
of them come with hekla.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from hekla.scheduler.errors import ConfigError, PluginError
from hekla.scheduler.framework import action_arguments as actionargs
from hekla.scheduler.framework import load_source as settings
from hekla.scheduler.framework.hooks import SWITCHES
from hekla.scheduler.framework.load_source import MetricsSource, SettingError
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.framework.registry import Registry
from hekla.units import bounded_yaml
from hekla.units.durations import DurationError

ACTIONS: Final = (
    "enqueue",
    "allocate",
    "backfill",
    "preempt",
    "reclaim",
    "gangpreempt",
    "gangreclaim",
    "shuffle",
)
VOLCANO_PLUGINS: Final = frozenset(
    [
        "binpack",
        "capacity",
        "cdp",
        "conformance",
        "deviceshare",
        "drf",
        "extender",
        "gang",
        "network-topology-aware",
        "nodegroup",
        "nodeorder",
        "numa-aware",
        "overcommit",
        "pdb",
        "predicates",
        "priority",
        "proportion",
        "rescheduling",
        "resource-strategy-fit",
        "resourcequota",
        "sla",
        "task-topology",
        "tdm",
        "usage",
    ]
)

DEFAULT: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
"""The configuration that Volcano's Helm chart installs."""

MAX_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class PluginOption:
    """One plugin of a tier."""

    plugin: type[Plugin]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, bool] = field(default_factory=dict)
    instance: Plugin | None = None
    """Used instead of a new instance per cycle, for tests that inspect a plugin."""

    def make(self) -> Plugin:
        """Return a new instance. Like in Volcano, no state of a plugin survives a cycle."""
        if self.instance is not None:
            return self.instance
        plugin = self.plugin()
        plugin.configure(self.arguments, self.switches)
        return plugin


@dataclass(frozen=True, slots=True)
class Config:
    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginOption, ...], ...]
    action_arguments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    metrics: MetricsSource | None = None
    """The source of node loads, if one is configured."""

    def argument(self, action: str, key: str) -> Any:
        """Return an argument of an action, as configured or by default."""
        given = self.action_arguments.get(action, {})
        return given[key] if key in given else actionargs.known(action)[key]

    def with_plugins(self, plugins: Sequence[Plugin]) -> Config:
        """Return the configuration with more plugins in an additional last tier."""
        tier = tuple(PluginOption(type(plugin), instance=plugin) for plugin in plugins)
        return replace(self, tiers=(*self.tiers, tier))


def default(registry: Registry) -> Config:
    return parse(DEFAULT, registry)


def parse(text: str, registry: Registry) -> Config:
    """Parse a configuration; ConfigError has the line and the reason."""
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"the configuration is larger than {MAX_BYTES} bytes")
    try:
        root = bounded_yaml.compose(text, bounded_yaml.CONFIG)
    except bounded_yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = str(getattr(error, "problem", error))
        near = text.splitlines()[max((line or 0) - 2, 0) : line]
        if any("password" in each for each in near):
            problem = "the value cannot be read; put it in quotes"  # the problem may quote it
        raise ConfigError(f"not YAML: {problem}", line) from None
    if root is None:
        raise ConfigError("the configuration is empty; it needs `actions` and `tiers`")
    return _Reader(registry).read(_Value(root))


def _switch(key: str) -> str | None:
    """Return the name of a switch; Volcano spells some `enable…` and some `enabled…`."""
    stem = key.removeprefix("enabled").removeprefix("enable")
    spellings = (key, f"enable{stem}", f"enabled{stem}")
    return next((name for name in spellings if name in SWITCHES), None)


class _Value:
    """A YAML value with its line."""

    def __init__(self, node: yaml.Node) -> None:
        self._node = node
        self.line: int = node.start_mark.line + 1

    def plain(self) -> Any:
        try:
            return bounded_yaml.plain(self._node)
        except (yaml.YAMLError, ValueError) as error:
            raise ConfigError(str(error), self.line) from None

    def items(self, what: str) -> dict[str, _Value]:
        if self._is_null():
            return {}
        if not isinstance(self._node, yaml.MappingNode):
            raise ConfigError(f"{what} must be a map", self.line)
        found: dict[str, _Value] = {}
        for key, value in self._node.value:
            found[str(key.value)] = _Value(value)
        return found

    def elements(self, what: str) -> list[_Value]:
        if self._is_null():
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            raise ConfigError(f"{what} must be a list", self.line)
        return [_Value(value) for value in self._node.value]

    def text(self, what: str) -> str:
        plain = self.plain()
        if not isinstance(plain, str):
            raise ConfigError(f"{what} must be text, and {plain!r} is not", self.line)
        return plain

    def _is_null(self) -> bool:
        return isinstance(self._node, yaml.ScalarNode) and self._node.tag.endswith(":null")


class _Reader:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._warnings: list[str] = []

    def read(self, root: _Value) -> Config:
        top = root.items("the configuration")
        for key, value in top.items():
            if key not in ("actions", "tiers", "configurations", "metrics"):
                self._refuse_unknown(
                    "key", key, ("actions", "tiers", "configurations", "metrics"), value
                )
        if "actions" not in top:
            raise ConfigError(
                '`actions` is missing; write for example: actions: "enqueue, allocate, backfill"'
            )
        tiers = (
            [self._tier(tier) for tier in top["tiers"].elements("tiers")] if "tiers" in top else []
        )
        actions = self._actions(top["actions"])
        arguments = self._configurations(top.get("configurations"))
        metrics = self._metrics(top.get("metrics"))
        self._warn_of_idle(actions, tiers, metrics)
        return Config(actions, tuple(tiers), arguments, tuple(self._warnings), metrics)

    def _metrics(self, value: _Value | None) -> MetricsSource | None:
        if value is None:
            return None
        lines = {key: each.line for key, each in value.items("metrics").items()}
        try:
            section = value.plain() or {}
        except ConfigError:  # what cannot be read may be the password
            raise ConfigError(
                "metrics cannot be read; put its values in quotes", value.line
            ) from None
        try:
            source = settings.read(section)
        except SettingError as error:
            line = lines.get(error.key) or lines.get(error.key.partition(".")[0], value.line)
            raise ConfigError(str(error), line) from None
        found = settings.warnings(section, source)
        self._warnings += [f"line {value.line}: metrics: {text}" for text in found]
        return source

    def _warn_of_idle(
        self,
        actions: Sequence[str],
        tiers: Sequence[Sequence[PluginOption]],
        metrics: MetricsSource | None,
    ) -> None:
        """Warn about plugins that have no effect without other settings."""
        names = {option.plugin.name for tier in tiers for option in tier}
        for name in ("usage", "rescheduling"):
            if name in names and metrics is None:
                self._warnings.append(
                    f"plugin {name!r} has no effect: it knows of no load without section metrics"
                )
        if "rescheduling" in names and "shuffle" not in actions:
            self._warnings.append(
                "plugin 'rescheduling' has no effect; add the action shuffle at the end of actions"
            )
        if "tdm" in names and "shuffle" not in actions:
            self._warnings.append(
                "plugin 'tdm' evicts no pods when a window closes; add the action shuffle at "
                "the end of actions"
            )

    def _actions(self, value: _Value) -> tuple[str, ...]:
        names = [name.strip() for name in value.text("actions").split(",")]
        for name in names:
            if name not in ACTIONS:
                self._refuse_unknown("action", name, ACTIONS, value)
        return tuple(names)

    def _tier(self, value: _Value) -> tuple[PluginOption, ...]:
        fields = value.items("a tier")
        plugins = fields["plugins"].elements("plugins") if "plugins" in fields else []
        options = [option for each in plugins if (option := self._plugin(each)) is not None]
        names = {option.plugin.name: option for option in options}
        drf = names.get("drf")
        if drf is not None and drf.switches.get("enableHierarchy") and "proportion" in names:
            raise ConfigError(
                "drf with enableHierarchy and proportion contradict each other; keep one of them",
                value.line,
            )
        return tuple(options)

    def _plugin(self, value: _Value) -> PluginOption | None:
        fields = value.items("a plugin")
        if "name" not in fields:
            raise ConfigError("a plugin has no name", value.line)
        name = fields["name"].text("name")
        switches: dict[str, bool] = {}
        for key, given in fields.items():
            if key in ("name", "arguments"):
                continue
            switch = _switch(key)
            if switch is None:
                self._refuse_unknown("switch", key, tuple(SWITCHES), given)
                continue
            plain = given.plain()
            if not isinstance(plain, bool):
                raise ConfigError(f"{key} must be true or false, and {plain!r} is not", given.line)
            switches[switch] = plain
        plugin = self._registry.get(name)
        if plugin is None:
            if name in VOLCANO_PLUGINS:
                self._warnings.append(
                    f"line {value.line}: plugin {name!r} is not installed and is skipped"
                )
                return None
            hint = self._registry.suggestion(name)
            raise ConfigError(f"unknown plugin {name!r}; {hint}", value.line)
        option = PluginOption(plugin, self._arguments(fields.get("arguments")), switches)
        self._try(option, fields.get("arguments", value))
        for unknown in plugin.unknown_arguments(option.arguments):
            self._warnings.append(
                f"line {fields['arguments'].line}: plugin {name!r} does not know the argument "
                f"{unknown}; it has no effect"
            )
        for key in sorted(plugin.ignored_arguments.keys() & option.arguments.keys()):
            self._warnings.append(
                f"line {fields['arguments'].line}: plugin {name!r}: {key} has no effect: "
                f"{plugin.ignored_arguments[key]}"
            )
        return option

    def _arguments(self, value: _Value | None) -> dict[str, Any]:
        if value is None:
            return {}
        value.items("arguments")
        plain = value.plain()
        return {str(key): given for key, given in (plain or {}).items()}

    def _try(self, option: PluginOption, where: _Value) -> None:
        """Make the plugin once, so that a bad argument is refused now and not in a cycle."""
        try:
            option.make()
        except PluginError as error:
            line = where.line
            for key, value in where.items("arguments").items():
                if str(error).startswith(key + " "):
                    line = value.line
            raise ConfigError(f"plugin {option.plugin.name!r}: {error}", line) from None

    def _configurations(self, value: _Value | None) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for each in value.elements("configurations") if value is not None else ():
            fields = each.items("an entry of configurations")
            if "name" not in fields:
                raise ConfigError("an entry of configurations has no name", each.line)
            name = fields["name"].text("name")
            if name not in ACTIONS:
                self._refuse_unknown("action", name, ACTIONS, fields["name"])
            if name not in found:  # as Volcano: the first entry of a name counts
                found[name] = self._action_arguments(name, fields.get("arguments"))
        return found

    def _action_arguments(self, action: str, value: _Value | None) -> dict[str, Any]:
        known, found = actionargs.known(action), {}
        for key, given in value.items("arguments").items() if value is not None else ():
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f" (did you mean {close[0]!r}?)" if close else ""
                self._warnings.append(
                    f"line {given.line}: action {action!r} does not know the argument "
                    f"{key!r}{hint}; it has no effect"
                )
                continue
            try:
                found[key] = actionargs.convert(action, key, given.plain())
            except (PluginError, DurationError) as error:
                text = str(error) if str(error).startswith(key) else f"{key}: {error}"
                raise ConfigError(f"action {action!r}: {text}", given.line) from None
        return found

    def _refuse_unknown(self, what: str, name: str, known: Sequence[str], where: _Value) -> None:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
        raise ConfigError(f"unknown {what} {name!r}; {hint}", where.line)
