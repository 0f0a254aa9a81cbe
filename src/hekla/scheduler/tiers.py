"""Asking the plugins: who is asked, in which order, and how their answers become one.

The rules are Volcano's, by extension point: the first answer, all, any, a vote tier by tier, or the
intersection of victims. An exception or an overrun costs the plugin its vote for the rest of the
cycle; the session goes on and the failure is reported.

Where Volcano confuses "nobody is a victim" with "nobody voted" (a veto in one tier lets the next
decide afresh), an empty answer is final here; `lenient_victims` gives the old behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hekla.scheduler.dimensions import BoolArray
from hekla.scheduler.model import Job, Queue, Task
from hekla.scheduler.plugin import PERMIT, REJECT, SWITCHES, Invalid, Plugin

OVERRUN_CALL_S = 1.0
OVERRUN_CYCLE_S = 5.0
"""What a plugin may take for one answer, and of one cycle in all, before it loses its vote.

hekla's own plugins are not timed: on a large cluster they may rightly take longer.
"""
_OWN = "hekla.scheduler.plugins."


@dataclass(frozen=True, slots=True)
class PluginFailure:
    plugin: str
    hook: str
    error: str


class _Neutral:
    """Stands in for the key of a plugin that failed: equal to everything."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


NEUTRAL = _Neutral()
Call = tuple[Plugin, Callable[..., Any]]


class Tiers:
    """The plugins of one session, tier by tier."""

    def __init__(
        self,
        tiers: Sequence[Sequence[Plugin]],
        *,
        stopwatch: Callable[[], float] | None = None,
        lenient_victims: bool = False,
    ) -> None:
        self.plugins = [plugin for tier in tiers for plugin in tier]
        self.failures: list[PluginFailure] = []
        self._stopwatch = stopwatch
        self._spent_s: dict[int, float] = {}
        self.timings_s: dict[tuple[str, str], float] = {}
        """How long each plugin took to open and close the session."""
        self._lenient = lenient_victims
        self._untimed = {
            id(plugin) for plugin in self.plugins if type(plugin).__module__.startswith(_OWN)
        }
        self._out: set[int] = set()
        self._failed: set[tuple[int, str]] = set()
        self._table: dict[str, list[list[Call]]] = {}
        self._calls: dict[str, list[Call]] = {}
        for tier in tiers:
            voters: dict[str, list[Call]] = {}
            for plugin in tier:
                for hook in plugin.hooks:
                    if _is_enabled(plugin, hook):
                        voters.setdefault(hook, []).append((plugin, getattr(plugin, hook)))
            for hook, calls in voters.items():
                self._table.setdefault(hook, []).append(calls)

    def has(self, hook: str) -> bool:
        return bool(self.calls(hook))

    def calls(self, hook: str) -> list[Call]:
        """Who answers a hook, in tier order, less those who failed."""
        known = self._calls.get(hook)
        if known is None:
            tiers = self._table.get(hook, ())
            known = [call for tier in tiers for call in tier if id(call[0]) not in self._out]
            self._calls[hook] = known
        return known

    def ask(self, call: Call, hook: str, *arguments: Any) -> tuple[bool, Any]:
        """One plugin's answer, and whether it gave one."""
        plugin, function = call
        if self._out and id(plugin) in self._out:
            return False, None
        if self._stopwatch is None or id(plugin) in self._untimed:
            try:
                return True, function(*arguments)
            except Exception as error:  # isolation is the point: anything a plugin raises
                self.fail(plugin, hook, error)
                return False, None
        start_s = self._stopwatch()
        try:
            return True, function(*arguments)
        except Exception as error:
            self.fail(plugin, hook, error)
            return False, None
        finally:
            call_s = self._stopwatch() - start_s
            cycle_s = self._spent_s[id(plugin)] = self._spent_s.get(id(plugin), 0.0) + call_s
            if call_s > OVERRUN_CALL_S:
                self.fail(plugin, hook, TimeoutError(f"took more than {OVERRUN_CALL_S:g} s"))
            elif cycle_s > OVERRUN_CYCLE_S:
                text = f"took more than {OVERRUN_CYCLE_S:g} s of a cycle"
                self.fail(plugin, hook, TimeoutError(text))

    def fail(self, plugin: Plugin, hook: str, error: BaseException) -> None:
        if id(plugin) in self._out or (id(plugin), hook) in self._failed:
            return
        text = f"{type(error).__name__}: {error}"
        self._failed.add((id(plugin), hook))  # an essential one goes on, and may fail at each node
        self.failures.append(PluginFailure(plugin.name, hook, text))
        if not plugin.essential:
            self._out.add(id(plugin))
            self._calls = {}

    # --- combination rules --------------------------------------------------------------------

    def order_key(self, hook: str, item: Any) -> tuple[Any, ...]:
        """The sort keys of all plugins joined, in tier order."""
        keys = []
        for tier in self._table.get(hook, ()):
            for call in tier:
                given, key = self.ask(call, hook, item)
                keys.append(key if given else NEUTRAL)
        return tuple(keys)

    def notify(self, hook: str, *arguments: Any) -> None:
        for call in self.calls(hook):
            self.ask(call, hook, *arguments)

    def notify_timed(self, hook: str, *arguments: Any) -> None:
        """The same for hooks that are called once in a session, which is what metrics show."""
        for call in self.calls(hook):
            start_s = self._stopwatch() if self._stopwatch is not None else 0.0
            self.ask(call, hook, *arguments)
            if self._stopwatch is not None:
                self.timings_s[hook, call[0].name] = self._stopwatch() - start_s
        for plugin in self.plugins if self._stopwatch is not None else ():
            self.timings_s.setdefault((hook, plugin.name), 0.0)  # it had nothing to do

    def first(self, hook: str, *arguments: Any) -> Any:
        """The first answer that is not None."""
        for call in self.calls(hook):
            given, answer = self.ask(call, hook, *arguments)
            if given and answer is not None:
                return answer
        return None

    def all_true(self, hook: str, *arguments: Any) -> bool:
        """Whether nobody says no; nobody asked is a yes."""
        for call in self.calls(hook):
            given, answer = self.ask(call, hook, *arguments)
            if given and not answer:
                return False
        return True

    def any_true(self, hook: str, *arguments: Any) -> Plugin | None:
        """The first plugin that says yes."""
        for call in self.calls(hook):
            given, answer = self.ask(call, hook, *arguments)
            if given and answer:
                return call[0]
        return None

    def vote(self, hook: str, job: Job) -> bool:
        """A rejection met ends it; a tier with a permission decides; all abstaining is a yes."""
        for tier in self._table.get(hook, ()):
            is_permitted = False
            for call in tier:
                _, answer = self.ask(call, hook, job)
                if answer is REJECT:
                    return False
                is_permitted |= answer is PERMIT
            if is_permitted:
                return True
        return True

    def starving(self, job: Job) -> bool:
        """The first tier with a voice decides, and there all must agree."""
        for tier in self._table.get("job_starving", ()):
            answers = [self.ask(call, "job_starving", job) for call in tier]
            said = [answer for given, answer in answers if given]
            if said:
                return all(said)
        return False

    def invalid(self, job: Job) -> Invalid | None:
        answer = self.first("job_valid", job)
        return answer if isinstance(answer, Invalid) else None

    def allowance(self, queue: Queue, task: Task, wanted: int) -> int:
        """How many tasks like this one the queue takes now, at most `wanted`.

        A plugin that answers yes or no speaks of one task only, so it is asked again for the next.
        """
        allowed = wanted
        for call in self.calls("allocatable"):
            given, answer = self.ask(call, "allocatable", queue, task)
            if not given:
                continue
            if isinstance(answer, bool):
                answer = min(allowed, 1) if answer else 0
            allowed = min(allowed, int(answer))
        return max(allowed, 0)

    def victims(self, hook: str, evictor: Any, candidates: Sequence[Task]) -> BoolArray:
        """Which candidates may go: all who vote in a tier must agree, and its answer is final."""
        for tier in self._table.get(hook, ()):
            agreed: BoolArray | None = None
            for call in tier:
                given, mask = self.ask(call, hook, evictor, candidates)
                if not given or mask is None:
                    continue
                mask = np.asarray(mask, dtype=bool)
                if self._lenient and not mask.any():
                    agreed = None
                    break
                agreed = mask if agreed is None else agreed & mask
                if self._lenient and not agreed.any():
                    agreed = None
            if agreed is not None:
                return agreed
        return np.zeros(len(candidates), dtype=bool)

    def fits_without(
        self, task: Task, node: int, options: Sequence[Sequence[Task]]
    ) -> BoolArray | None:
        """After which of several departures all plugins let the task in; None where none cares."""
        agreed: BoolArray | None = None
        for call in self.calls("fits_without"):
            given, mask = self.ask(call, "fits_without", task, node, options)
            if not given and call[0].essential:
                return np.zeros(len(options), dtype=bool)
            if given and mask is not None:
                mask = np.asarray(mask, dtype=bool)
                agreed = mask if agreed is None else agreed & mask
        return agreed

    def unwanted(self, running: Sequence[Task]) -> BoolArray:
        """Tasks that should go elsewhere: whom anybody names, in the first tier with a name."""
        for tier in self._table.get("victim_tasks", ()):
            named = np.zeros(len(running), dtype=bool)
            for call in tier:
                given, mask = self.ask(call, "victim_tasks", running)
                if given and mask is not None:
                    named |= np.asarray(mask, dtype=bool)
            if named.any():
                return named
        return np.zeros(len(running), dtype=bool)


def _is_enabled(plugin: Plugin, hook: str) -> bool:
    switch = SWITCHES.get(hook)
    return switch is None or plugin.switches.get(switch, True)
