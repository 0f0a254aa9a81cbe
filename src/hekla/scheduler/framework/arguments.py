"""Plugin arguments: annotated class attributes, filled from the tiers of the configuration."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.units.durations import DurationError, parse_duration


def duration_s(key: str, text: str) -> float:
    """Convert a duration argument such as 1h30m to seconds; PluginError names the key."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise PluginError(f"{key} is refused: {error}") from None


@dataclass(frozen=True, slots=True)
class Key:
    """The name of an argument in a tiers file, if it is not `plugin.attribute`."""

    name: str


_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a plugin: its names, its type and its default."""

    keys: tuple[str, ...]
    kind: type
    default: Any

    def convert(self, value: Any, key: str | None = None) -> Any:
        """Convert a value to the type of the argument.

        Volcano ignores a quoted number; here "5" counts as 5.
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


def arguments_of(cls: type, plugin: str, base_class: type) -> Mapping[str, Argument]:
    found: dict[str, Argument] = {}
    for base in reversed(cls.__mro__):
        if base is base_class or not issubclass(base, base_class):
            continue
        for attribute in vars(base).get("__annotations__", {}):
            default = vars(base).get(attribute, _MISSING)
            if attribute.startswith("_") or default is _MISSING:
                continue
            hint = _hint(base, attribute)
            if typing.get_origin(hint) is ClassVar:
                continue
            found[attribute] = _argument(plugin, attribute, hint, default)
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
