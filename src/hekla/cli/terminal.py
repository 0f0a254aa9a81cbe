"""Text for people: control characters in it are shown, never sent to the terminal.

Names, messages and annotations are written by tenants. An escape sequence in them could clear the
screen, fake output or change the window's title. `echo` shows it as `\\u001b`. Output for programs
(`-o json`, `yaml`, `jsonpath`) and the logs of pods are written as they are, as by kubectl.
"""

from __future__ import annotations

from typing import Any, Final

import click

__all__ = ["echo", "escaped", "sequence", "style"]

_KEPT: Final = "\n\t"
_SHOWN: Final = {
    code: f"\\u{code:04x}"
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F),
                 *range(0x2066, 0x206A))
    if chr(code) not in _KEPT
}  # fmt: skip
"""C0, DEL, C1, and the marks that change the direction or the line of text."""
# Stands for ESC in our own colours until they are printed. A lone surrogate is in no JSON text, so
# that no tenant can write it.
_OUR_ESCAPE: Final = "\udc1b"


def escaped(text: str) -> str:
    """Return the text with control characters made visible; newline and tab stay."""
    return text.translate(_SHOWN)


def style(text: Any, **styles: Any) -> str:
    """Colour a text for `echo`."""
    return sequence(click.style(escaped(str(text)), **styles))


def sequence(text: str) -> str:
    """Return an escape sequence of our own for `echo`."""
    return text.replace("\x1b", _OUR_ESCAPE)


def echo(message: Any = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text for people."""
    shown = escaped(str(message)).replace(_OUR_ESCAPE, "\x1b")
    click.echo(shown, err=err, nl=nl)
