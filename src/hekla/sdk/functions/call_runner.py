"""Run one pickled call in a pod and print its result. Started as a script; see `calls`.

Note: only the standard library is imported, since the pod's image need not have hekla.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import traceback
import zlib
from pathlib import Path
from typing import Any

CHUNK = 4096
"""Characters of a result per line: container engines split lines of 16 KiB."""
MAX_RESULT_BYTES = 4 << 20
"""Compressed; logs of pods are bounded, too."""


def main(directory: Path) -> int:
    """Run the call of this pod; return the exit code of the process."""
    about = json.loads((directory / "about.json").read_text())
    sys.path[:0] = [str(directory / "cloudpickle.zip")]
    have, want = list(sys.version_info[:2]), about["python"]
    if have != want:
        return _refuse(
            about,
            f"the function was pickled by Python {want[0]}.{want[1]}, but the image runs "
            f"{have[0]}.{have[1]}: use an image with the same version",
        )
    sys.path += [entry for entry in about["path"] if entry not in sys.path]
    _enter(about["directory"])
    import cloudpickle  # of the Secret

    try:
        function, calls = pickle.loads((directory / "calls.pickle").read_bytes())
        arguments, keywords = pickle.loads(calls[_index(len(calls))])
        returned = pickle.loads(function)(*arguments, **keywords)
    except BaseException as error:
        return _raised(about, cloudpickle, error)
    try:
        outcome = cloudpickle.dumps((True, returned, ""))
    except Exception as error:
        return _refuse(about, f"the result cannot be pickled: {error}")
    if not _print(about["token"], outcome):
        return _refuse(
            about,
            f"the result has more than {MAX_RESULT_BYTES >> 20} MiB compressed: write it to a file "
            "and return the path",
        )
    return 0


def _enter(directory: str) -> None:
    if directory:
        try:
            os.chdir(directory)
        except OSError as error:
            print(f"hekla: the call runs in {os.getcwd()}: {error}", file=sys.stderr)


def _index(count: int) -> int:
    return 0 if count == 1 else int(os.environ["HEKLA_ARRAY_INDEX"])


def _raised(about: Any, cloudpickle: Any, error: BaseException) -> int:
    trace = error.__traceback__ and error.__traceback__.tb_next  # without this file's frame
    text = "".join(traceback.format_exception(type(error), error, trace))
    sys.stderr.write(text)
    try:
        # The traceback's text is sent, its frames cannot be.
        outcome = cloudpickle.dumps((False, error.with_traceback(None), text))
        pickle.loads(outcome)
    except Exception:
        outcome = pickle.dumps((False, None, text))
    if not _print(about["token"], outcome):
        _print(about["token"], pickle.dumps((False, None, text[-10_000:])))
    return 1


def _refuse(about: Any, text: str) -> int:
    print(f"hekla: {text}", file=sys.stderr)
    _print(about["token"], pickle.dumps((False, None, text)))
    return 1


def _print(token: str, outcome: bytes) -> bool:
    """Print an outcome in lines that `results` finds; return whether it was small enough."""
    packed = zlib.compress(outcome)
    if len(packed) > MAX_RESULT_BYTES:
        return False
    text = base64.b64encode(packed).decode()
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    sys.stdout.flush()
    sys.stderr.flush()
    for number, chunk in enumerate(chunks, 1):
        # One write per line, so that lines of other processes do not divide it.
        line = f"hekla-result:{token}:{number}/{len(chunks)}:{chunk}\n".encode()
        while line:
            line = line[os.write(1, line) :]
    return True


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).parent))
