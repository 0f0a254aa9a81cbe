"""Volcano's scheduler in one process: a world in, the decisions of one session out.

    with Oracle() as oracle:
        oracle.decide({"conf": "…", "ties": "first", "nodes": […], "pods": […], …})

The program (`tools/peers/volcano/oracle`) links the real scheduler; only the API server is
replaced, by the objects of the world. Its fields are in world.go, those of the answer in
outcome.go. A session takes about a millisecond.

Note: some panics of Volcano end the process. Such a world is answered with an error, and the
program is started again.
"""

from __future__ import annotations

import json
import subprocess
from types import TracebackType
from typing import Any

from tools.kube.gobuild import ensure
from tools.peers.volcano import ORACLE

Json = dict[str, Any]


class OracleError(Exception):
    """Volcano did not decide: the text is its error, or the last line before its end."""


class Oracle:
    """The program, started with the first world."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Oracle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def decide(self, world: Json) -> Json:
        """Return what one session decides on the world."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(world).encode() + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise OracleError(self._last_words(process))
        answer: Json = json.loads(line)
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [ensure(ORACLE)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        return self._process

    def _last_words(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stderr is not None
        text = process.stderr.read().decode(errors="replace")
        process.wait()
        self.close()
        found = [line for line in text.splitlines() if line.startswith(("panic:", "fatal error:"))]
        return found[0] if found else text[-400:] or "the program ended without a message"
