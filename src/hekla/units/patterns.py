"""Regular expressions of clients, matched in linear time by RE2, as in Kubernetes and Volcano.

Python's `re` backtracks: `(a|a)*b` needs hours for a text of 40 letters. It is fine for patterns of
our own, but not for those of clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import re2

__all__ = ["Pattern", "PatternError", "compile_pattern"]

MAX_PATTERN: Final = 4096

_OPTIONS: Final = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 20


class PatternError(ValueError):
    """The expression is not one of RE2."""


class Pattern:
    """A compiled expression."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def found_in(self, text: str) -> bool:
        return self._compiled.search(text) is not None

    def matches_of(self, text: str) -> Iterator[str]:
        """Yield the parts of the text that match, from left to right."""
        for match in self._compiled.finditer(text):
            yield match.group(0)


@lru_cache(maxsize=1024)
def compile_pattern(text: str) -> Pattern:
    """Compile an expression; PatternError if RE2 refuses it (look-around, back-references)."""
    if len(text) > MAX_PATTERN:
        raise PatternError(f"is longer than {MAX_PATTERN} characters")
    try:
        return Pattern(re2.compile(text, _OPTIONS))
    except re2.error as error:
        problem = error.args[0] if error.args else "unknown"
        shown = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise PatternError(f"{shown} (syntax of RE2)") from None
    except UnicodeEncodeError as error:
        raise PatternError(f"is not Unicode: {error.reason}") from None
