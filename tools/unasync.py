"""Write `hekla/kube/sync_verbs.py` from `hekla/kube/verbs.py`: `python -m tools.unasync`.

The verbs of the synchronous client are those of the asynchronous one without `async` and `await`.
Names are replaced token by token; `tests/kube/test_generated.py` checks that the file is current.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Final

KUBE: Final = Path(__file__).parents[1] / "src" / "hekla" / "kube"
SOURCE: Final = KUBE / "verbs.py"
TARGET: Final = KUBE / "sync_verbs.py"
NAMES: Final = {
    "AsyncGenerator": "Generator",
    "AsyncIterator": "Iterator",
    "Stream": "SyncStream",
    "StopAsyncIteration": "StopIteration",
    "Transport": "SyncTransport",
    "Verbs": "SyncVerbs",
    "Watch": "SyncWatch",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "anext": "next",
}
MODULES: Final = {"hekla.kube.transport": "hekla.kube.sync_transport"}
DOCSTRING: Final = (
    '"""The verbs of the synchronous client. Generated from `verbs` by tools/unasync.py."""'
)


def synchronous(source: str) -> str:
    """Return `source` without async syntax, formatted."""
    lines = source.splitlines(keepends=True)
    replacements: list[tuple[int, int, int, str]] = []
    is_docstring_replaced = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        (row, start), (_, end), text = token.start, token.end, token.string
        if token.type == tokenize.STRING and not is_docstring_replaced:
            is_docstring_replaced = True
            lines[row - 1 : token.end[0]] = [DOCSTRING, *[""] * (token.end[0] - row)]
        elif token.type == tokenize.STRING and text.startswith('"""'):
            lines[row - 1] = lines[row - 1].replace("async ", "")
        elif text in ("async", "await"):
            replacements.append((row, start, end + 1, ""))
        elif token.type == tokenize.NAME and text in NAMES:
            replacements.append((row, start, end, NAMES[text]))
    for row, start, end, text in reversed(replacements):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + text + line[end:]
    result = "".join(lines).replace("Generator, Iterator, Iterator,", "Generator, Iterator,")
    for old, new in MODULES.items():
        result = result.replace(old, new)
    return _formatted(result)


def _formatted(source: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--quiet", "--fix-only", "--select", "I"], ["format", "--quiet"]):
        arguments = [*ruff, *command, "--stdin-filename", str(TARGET), "-"]
        source = subprocess.run(
            arguments, input=source, capture_output=True, text=True, check=True
        ).stdout
    return source


if __name__ == "__main__":
    TARGET.write_text(synchronous(SOURCE.read_text()))
