"""Go-style flags, as Volcano's plugins take them: `-f=v`, `--f=v`, `--f v`; a bare boolean is true.

Note: the value of a boolean needs the equals sign. `--debug false` means `--debug`, and then a word
that ends the flags.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")

Value = str | int | bool


class FlagError(ValueError):
    """An invalid argument; the arguments before it are used."""


def parse_flags(
    kinds: Mapping[str, tuple[str, type]], arguments: Sequence[str]
) -> Iterator[tuple[str, Value]]:
    """Yield attribute and value of every flag, in order.

    `kinds` maps flags to (attribute, type).
    """
    words = iter(arguments)
    for word in words:
        if not word.startswith("-") or word == "-":
            return  # the first word that is not a flag ends the flags
        if word == "--":
            return
        name, equals, text = word.lstrip("-").partition("=")
        if name not in kinds:
            known = ", ".join(f"--{flag}" for flag in kinds) or "none"
            raise FlagError(f"unknown flag {word!r}; there are: {known}")
        attribute, kind = kinds[name]
        if kind is bool:
            yield attribute, _boolean(name, text) if equals else True
            continue
        if not equals:
            following = next(words, None)
            if following is None:
                raise FlagError(f"flag --{name} needs a value; write --{name}=VALUE")
            text = following
        yield attribute, _number(name, text) if kind is int else text


def _boolean(name: str, text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise FlagError(f"flag --{name}={text}: write true or false")


def _number(name: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise FlagError(f"flag --{name}={text}: write a whole number") from None
