"""What `hekla run` prints about a failed job: exit codes of its pods and commands for more.

Of an array it prints the failed indices by exit code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from hekla.api import arrays
from hekla.sdk.array_status import failure_lines
from hekla.sdk.exit_codes import NOT_FOUND, signal_of
from hekla.units.objects import Object

MAX_SHOWN: Final = 10
OOM_KILLED: Final = "OOMKilled"
START_ERROR: Final = "StartError"
TAIL_LINES: Final = 10


@dataclass(frozen=True, slots=True)
class FailedContainer:
    """A container that ended with an error, or a pod that failed without one."""

    pod: str
    namespace: str
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    index: int | None = None
    """The index of an array."""

    @property
    def signal(self) -> str:
        """The signal that ended it, such as `SIGSEGV`; empty if it exited."""
        return signal_of(self.exit_code or 0)

    @property
    def why(self) -> str:
        """Why it failed, without its name: `exit code 137, OOMKilled`."""
        code = "" if self.exit_code is None else f"exit code {self.exit_code}"
        reason = self.signal if self.reason in ("", "Error") else self.reason
        return ", ".join(filter(None, (code, reason))) or "unknown reason"

    def __str__(self) -> str:
        ended = f"pod {self.pod} failed"
        if self.exit_code is not None:
            ended = f"pod {self.pod}: container {self.container} exited with code {self.exit_code}"
        reason = self.signal if self.reason in ("", "Error") else self.reason
        why = ": ".join(filter(None, (reason, self.message)))
        return f"{ended} ({why})" if why else ended


def failed_containers(pod: Object) -> list[FailedContainer]:
    """Return the containers for which a failed pod failed."""
    status: Any = pod.get("status") or {}
    where = str(pod["metadata"]["name"]), str(pod["metadata"].get("namespace") or "")
    failed, index = [], arrays.index_of_pod(pod)
    own = str(status.get("reason") or ""), str(status.get("message") or "")
    statuses = status.get("initContainerStatuses") or (), status.get("containerStatuses") or ()
    for one in chain(*statuses):
        ended = (one.get("state") or {}).get("terminated") or {}
        if code := int(ended.get("exitCode") or 0):
            why = str(ended.get("reason") or ""), str(ended.get("message") or "")
            why = own if own[0] and why[0] in ("", "Error") else why
            failed.append(FailedContainer(*where, str(one["name"]), code, *why, index))
    if failed:
        return failed
    return [FailedContainer(*where, reason=own[0], message=own[1], index=index)]


def by_index(failed: FailedContainer) -> tuple[int, str, int]:
    """Return the sort key: the index of an array, else the pod, in the order of its number."""
    stem, _, number = failed.pod.rpartition("-")
    index = -1 if failed.index is None else failed.index
    return index, stem, int(number) if number.isdigit() else -1


def heading(failed: FailedContainer) -> str:
    """Return the line above output that is shown again."""
    what = "pod" if failed.index is None else f"index {failed.index}, pod"
    return f"the last lines of {what} {failed.pod}, container {failed.container}:"


def report(job: Object, phase: str, failed: Sequence[FailedContainer], more: str) -> Iterator[str]:
    """Yield the lines about one job. `more` are the commands that tell more."""
    state = (job.get("status") or {}).get("state") or {}
    why = ": ".join(filter(None, (state.get("reason"), state.get("message"))))
    head = f"job {job['metadata']['name']} ended as {phase}"
    yield f"{head}: {why}" if why else head
    lines = [str(one) for one in failed]
    if arrays.array_of(job) is not None:
        lines = list(_by_reason(failed))
    for line in lines[:MAX_SHOWN]:
        yield f"  {line}"
    if len(lines) > MAX_SHOWN:
        yield f"  … and {len(lines) - MAX_SHOWN} more"
    if any(one.reason == OOM_KILLED for one in failed):
        yield "  a container needed more memory than its limit; --memory (limits.memory) raises it"
    if any(one.reason == START_ERROR and one.exit_code == NOT_FOUND for one in failed):
        yield "  the program is not where the pod looks for it: correct its name or the PATH, or"
        yield "  use an image that has it; pods of other users see no private directories"
    yield f"  next: {more}"


def _by_reason(failed: Sequence[FailedContainer]) -> Iterator[str]:
    """Yield `failed indices 3,7-9: exit code 1` for each reason."""
    indices: dict[str, list[int]] = {}
    for one in failed:
        if one.index is not None:
            indices.setdefault(one.why, []).append(one.index)
    for line in failure_lines(indices):
        yield f"failed indices {line}"
