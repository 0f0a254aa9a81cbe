"""Calling hooks: which plugins are called, in which order, and how their answers are combined.

The rules are Volcano's, by hook: the first answer, all, any, a vote tier by tier, or the
intersection of victims. A plugin that raises or overruns is left out for the rest of the cycle. The
session continues and the failure is reported.

Volcano confuses "no candidate is a victim" with "no plugin answered": a veto in one tier lets the
next tier decide. Here an empty answer is final; `lenient_victims` gives Volcano's behaviour.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import compress
from typing import Any, Final, Literal, TypeAlias, TypeVar, TypeVarTuple

import numpy as np

from hekla.scheduler.framework import hooks
from hekla.scheduler.framework.answers import PERMIT, REJECT, Invalid, Vote
from hekla.scheduler.framework.hooks import HOOKS, AnyHook, Hook
from hekla.scheduler.framework.plan import PluginFailure
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.dimensions import BoolArray
from hekla.scheduler.state.model import Job, Queue, Task

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Call: TypeAlias = tuple[Plugin, Callable[[*Ts], R]]
"""A plugin and its method for a hook."""

FRAMES_SHOWN: Final = 8
OVERRUN_CALL_S: Final = 1.0
OVERRUN_CYCLE_S: Final = 5.0
"""The time that a plugin may take for one call, and for all calls of a cycle.

Plugins of hekla itself have no limit: on a large cluster they may take longer.
"""
_OWN: Final = "hekla.scheduler.plugins."


class Failed(Enum):
    """The type of FAILED, which stands for the answer of a plugin that raised or was left out."""

    FAILED = "failed"


FAILED: Final = Failed.FAILED


class _Neutral:
    """The sort key of a plugin that failed. It equals every key."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


NEUTRAL: Final = _Neutral()


class Tiers:
    """The plugins of one session by tier, and the ways to call their hooks."""

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
        """Time that each plugin took to open and close the session."""
        self._lenient = lenient_victims
        self._untimed = {
            id(plugin) for plugin in self.plugins if type(plugin).__module__.startswith(_OWN)
        }
        self._excluded: set[int] = set()
        self._reported: set[tuple[int, str]] = set()
        self._by_tier: dict[AnyHook, list[list[Any]]] = {}
        self._calls: dict[AnyHook, list[Any]] = {}
        for tier in tiers:
            methods: dict[AnyHook, list[Any]] = {}
            for plugin in tier:
                for name in plugin.hooks:
                    if _is_enabled(plugin, HOOKS[name]):
                        methods.setdefault(HOOKS[name], []).append((plugin, getattr(plugin, name)))
            for hook, calls in methods.items():
                self._by_tier.setdefault(hook, []).append(calls)

    def has(self, hook: AnyHook) -> bool:
        """Tell whether a plugin implements the hook and has not failed."""
        return bool(self.calls(hook))

    def calls(self, hook: Hook[R, *Ts]) -> list[Call[*Ts, R]]:
        """Return the implementations of a hook in tier order, without plugins that failed."""
        known: list[Call[*Ts, R]] | None = self._calls.get(hook)
        if known is None:
            tiers = self._by_tier.get(hook, ())
            known = [call for tier in tiers for call in tier if id(call[0]) not in self._excluded]
            self._calls[hook] = known
        return known

    def call(
        self, call: Call[*Ts, R], hook: AnyHook, *arguments: *Ts
    ) -> R | Literal[Failed.FAILED]:
        """Call one implementation of a hook; FAILED if it raises or its plugin was left out.

        The method may also be another function that runs on behalf of the plugin.
        """
        plugin, method = call
        if self._excluded and id(plugin) in self._excluded:
            return FAILED
        if self._stopwatch is None or id(plugin) in self._untimed:
            try:
                return method(*arguments)
            except Exception as error:  # a plugin may raise anything, and must not stop the cycle
                self.fail(plugin, hook, error)
                return FAILED
        start_s = self._stopwatch()
        try:
            return method(*arguments)
        except Exception as error:
            self.fail(plugin, hook, error)
            return FAILED
        finally:
            call_s = self._stopwatch() - start_s
            cycle_s = self._spent_s[id(plugin)] = self._spent_s.get(id(plugin), 0.0) + call_s
            if call_s > OVERRUN_CALL_S:
                self.fail(plugin, hook, TimeoutError(f"took more than {OVERRUN_CALL_S:g} s"))
            elif cycle_s > OVERRUN_CYCLE_S:
                text = f"took more than {OVERRUN_CYCLE_S:g} s of a cycle"
                self.fail(plugin, hook, TimeoutError(text))

    def fail(self, plugin: Plugin, hook: AnyHook, error: BaseException) -> None:
        """Report a failure, and leave the plugin out unless it is essential."""
        if id(plugin) in self._excluded or (id(plugin), hook.name) in self._reported:
            return
        self._reported.add((id(plugin), hook.name))  # an essential plugin may fail at each node
        text = f"{type(error).__name__}: {error}"
        frames = error.__traceback__ and error.__traceback__.tb_next  # below the call here
        lines = "".join(traceback.format_tb(frames)[-FRAMES_SHOWN:])
        self.failures.append(PluginFailure(plugin.name, hook.name, text, lines))
        if not plugin.essential:
            self._excluded.add(id(plugin))
            self._calls = {}

    # --- combination rules --------------------------------------------------------------------

    def order_key(self, hook: Hook[Any, *Ts], *arguments: *Ts) -> tuple[Any, ...]:
        """Return the sort keys of all plugins, joined in tier order."""
        keys = []
        for tier in self._by_tier.get(hook, ()):
            for call in tier:
                key = self.call(call, hook, *arguments)
                keys.append(NEUTRAL if key is FAILED else key)
        return tuple(keys)

    def notify(self, hook: Hook[None, *Ts], *arguments: *Ts) -> None:
        """Call all plugins; their answers are ignored."""
        for call in self.calls(hook):
            self.call(call, hook, *arguments)

    def notify_timed(self, hook: Hook[None, *Ts], *arguments: *Ts) -> None:
        """Call all plugins and record how long each takes, for metrics."""
        for call in self.calls(hook):
            start_s = self._stopwatch() if self._stopwatch is not None else 0.0
            self.call(call, hook, *arguments)
            if self._stopwatch is not None:
                self.timings_s[hook.name, call[0].name] = self._stopwatch() - start_s
        for plugin in self.plugins if self._stopwatch is not None else ():
            self.timings_s.setdefault((hook.name, plugin.name), 0.0)  # it has no such method

    def first(self, hook: Hook[T | None, *Ts], *arguments: *Ts) -> T | None:
        """Return the first answer that is not None."""
        for call in self.calls(hook):
            answer = self.call(call, hook, *arguments)
            if answer is not FAILED and answer is not None:
                return answer
        return None

    def each(self, hook: Hook[R, *Ts], *arguments: *Ts) -> list[R]:
        """Return the answers of all plugins in tier order."""
        answers = (self.call(call, hook, *arguments) for call in self.calls(hook))
        return [answer for answer in answers if answer is not FAILED]

    def all_true(self, hook: Hook[bool, *Ts], *arguments: *Ts) -> bool:
        """Tell whether no plugin answers False; without plugins it is True."""
        for call in self.calls(hook):
            answer = self.call(call, hook, *arguments)
            if answer is not FAILED and not answer:
                return False
        return True

    def any_true(self, hook: Hook[bool, *Ts], *arguments: *Ts) -> Plugin | None:
        """Return the first plugin that answers True."""
        for call in self.calls(hook):
            answer = self.call(call, hook, *arguments)
            if answer is not FAILED and answer:
                return call[0]
        return None

    def vote(self, hook: Hook[Vote | None, Job], job: Job) -> bool:
        """Count votes tier by tier: REJECT ends it, a tier with PERMIT decides, silence permits."""
        for tier in self._by_tier.get(hook, ()):
            is_permitted = False
            for call in tier:
                answer = self.call(call, hook, job)
                if answer is REJECT:
                    return False
                is_permitted |= answer is PERMIT
            if is_permitted:
                return True
        return True

    def starving(self, job: Job) -> bool:
        """Ask whether a job starves: the first tier with an answer decides, and must agree."""
        for tier in self._by_tier.get(hooks.job_starving, ()):
            answers = [self.call(call, hooks.job_starving, job) for call in tier]
            given = [answer for answer in answers if answer is not FAILED]
            if given:
                return all(given)
        return False

    def invalid(self, job: Job) -> Invalid | None:
        """Return why a job cannot be scheduled."""
        answer = self.first(hooks.job_valid, job)
        return answer if isinstance(answer, Invalid) else None

    def allowance(
        self, queue: Queue, task: Task, wanted: int, *, has_leftovers: bool = False
    ) -> int:
        """Return how many tasks equal to this one the queue may allocate, at most `wanted`.

        A plugin that answers with a bool means one task. It is called again for the next. With
        `has_leftovers`, plugins with the hook `leftover` answer that one.
        """
        allowed = wanted
        for call in self.calls(hooks.allocatable):
            known = self._leftover(call[0], queue, task) if has_leftovers else None
            answer: bool | int | Literal[Failed.FAILED] = (
                self.call(call, hooks.allocatable, queue, task) if known is None else known
            )
            if answer is FAILED:
                continue
            if isinstance(answer, bool):
                answer = min(allowed, 1) if answer else 0
            allowed = min(allowed, int(answer))
        return max(allowed, 0)

    def _leftover(
        self, plugin: Plugin, queue: Queue, task: Task
    ) -> int | Literal[Failed.FAILED] | None:
        """Return the answer of a plugin that has the hook `leftover`."""
        for call in self.calls(hooks.leftover):
            if call[0] is plugin:
                return self.call(call, hooks.leftover, queue, task)
        return None

    def victims(
        self,
        hook: Hook[BoolArray | None, T, Sequence[Task]],
        evictor: T,
        tasks: Sequence[Task],
        also: Callable[[Sequence[Task]], Iterable[bool]] | None = None,
    ) -> list[bool]:
        """Return which tasks may be evicted together, the first of them first.

        All plugins of the first tier that answers must agree, and in every tier the plugins that
        guard queues. `also` is one more voter. Plugins count what a job or queue loses, so each one
        is asked only about candidates that the voters before it allow; and when a later voter
        refuses a candidate, the earlier ones are asked again without it.
        """
        if self._lenient:
            return self._lenient_victims(hook, evictor, tasks)
        kept: list[Task] = []
        left = list(tasks)
        while left:
            kept, refused = self._refusals(hook, evictor, left, also)
            if not refused:
                break
            left = [task for task in left if id(task) not in refused]
        if len(kept) == len(tasks):
            return [True] * len(tasks)
        chosen = set(map(id, kept))
        return [id(task) in chosen for task in tasks]

    def _refusals(
        self,
        hook: Hook[BoolArray | None, T, Sequence[Task]],
        evictor: T,
        left: list[Task],
        also: Callable[[Sequence[Task]], Iterable[bool]] | None,
    ) -> tuple[list[Task], set[int]]:
        """Return the candidates that all voters allow, and those to leave out in another round.

        There is another round only if an earlier voter refused a candidate too: it might allow that
        one instead.
        """
        kept, refused, has_answer = left, set[int](), False
        for tier in self._by_tier.get(hook, ()):
            is_decided = has_answer
            for call in tier:
                if is_decided and not call[0].guards_queues:
                    continue
                answer = self.call(call, hook, evictor, kept)
                if answer is FAILED or answer is None:
                    continue
                has_answer = True
                kept = _vote(left, kept, np.asarray(answer, dtype=bool).tolist(), refused)
        if not has_answer:
            return [], set()
        if also is not None:
            kept = _vote(left, kept, list(also(kept)), refused)
        return kept, refused

    def _lenient_victims(
        self, hook: Hook[BoolArray | None, T, Sequence[Task]], evictor: T, tasks: Sequence[Task]
    ) -> list[bool]:
        """Return victims as Volcano does, which takes an empty answer for none."""
        for tier in self._by_tier.get(hook, ()):
            agreed: BoolArray | None = None
            for call in tier:
                answer = self.call(call, hook, evictor, tasks)
                if answer is FAILED or answer is None:
                    continue
                mask = np.asarray(answer, dtype=bool)
                if not mask.any():
                    agreed = None
                    break
                agreed = mask if agreed is None else agreed & mask
                if not agreed.any():
                    agreed = None
            if agreed is not None:
                return list(agreed.tolist())
        return [False] * len(tasks)

    def fits_after_eviction(
        self, task: Task, node: int, victim_sets: Sequence[Sequence[Task]]
    ) -> BoolArray | None:
        """Return for each set of victims whether the task fits without it; None if it fits now."""
        agreed: BoolArray | None = None
        for call in self.calls(hooks.fits_after_eviction):
            answer = self.call(call, hooks.fits_after_eviction, task, node, victim_sets)
            if answer is FAILED:
                if call[0].essential:
                    return np.zeros(len(victim_sets), dtype=bool)
            elif answer is not None:
                mask = np.asarray(answer, dtype=bool)
                agreed = mask if agreed is None else agreed & mask
        return agreed

    def victim_tasks(self, running: Sequence[Task]) -> BoolArray:
        """Return the tasks to evict without a preemptor: the union of the first tier with any."""
        for tier in self._by_tier.get(hooks.victim_tasks, ()):
            named = np.zeros(len(running), dtype=bool)
            for call in tier:
                answer = self.call(call, hooks.victim_tasks, running)
                if answer is not FAILED and answer is not None:
                    named |= np.asarray(answer, dtype=bool)
            if named.any():
                return named
        return np.zeros(len(running), dtype=bool)


def _vote(left: list[Task], kept: list[Task], votes: list[bool], refused: set[int]) -> list[Task]:
    """Return what a voter keeps of `kept`; note its refusals if an earlier voter refused too."""
    if all(votes):
        return kept
    if len(kept) < len(left):
        refused.update(id(task) for task, vote in zip(kept, votes, strict=True) if not vote)
    return list(compress(kept, votes))


def _is_enabled(plugin: Plugin, hook: AnyHook) -> bool:
    return not hook.switch or plugin.switches.get(hook.switch, True)
