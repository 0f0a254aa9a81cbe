"""usage: no pods for overloaded nodes, and the least loaded node first.

The load of a node is measured (section `metrics` of the configuration): means over ten minutes.
Pods placed since are not included, so each adds an estimate from its requests and limits to the
node's score. The filter uses the measured load only. A reading older than five minutes is ignored:
the filter passes, and the score is 0.

Unlike in Volcano, whether estimates on a node are raised (`risk_factor`) is computed once per
cycle, from its load and the plain estimates of its pods. So the order of pods does not matter, and
rolling back a placement restores the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np

from hekla.scheduler.errors import PluginError
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.load_source import MetricsSource
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.state.classes import TaskClass
from hekla.scheduler.state.dimensions import CPU, MEMORY, BoolArray, FloatArray, IntArray
from hekla.scheduler.state.load import STALE_S, USAGE_PERIOD_S
from hekla.scheduler.state.model import Task
from hekla.scheduler.state.status import ALLOCATED, PIPELINED, RELEASING, RUNNING
from hekla.units.quantity import QuantityError, parse_quantity

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

CPU_EXCEEDED: Final = "the CPU load of the node exceeds the upper limit."
MEMORY_EXCEEDED: Final = "the memory load of the node exceeds the upper limit."
"""Volcano's messages, which users search for."""
MAX_SCORE: Final = 100.0
MIB: Final = 2.0**20
_ROWS: Final = (CPU, MEMORY)
_NEW: Final = (ALLOCATED, PIPELINED)


class Usage(Plugin, name="usage"):
    """Filters and scores nodes by their measured load."""

    by_class: ClassVar[bool] = True

    weight: Annotated[int, Key("usage.weight")] = 5
    cpu_weight: Annotated[int, Key("cpu.weight")] = 1
    memory_weight: Annotated[int, Key("memory.weight")] = 1
    thresholds: Annotated[dict[str, Any], Key("thresholds")] = {}  # noqa: RUF012
    """The percentage of CPU and memory above which a node takes no pods."""
    estimator: Annotated[dict[str, Any], Key("estimator")] = {}  # noqa: RUF012
    """The estimate of what a pod uses after it was placed."""

    _most = (80.0, 80.0)
    _request_ratio, _burst_ratio = 0.7, 0.0
    _risk_threshold, _risk_factor = 0.6, 1.2
    _best_effort = (250.0, 200.0 * MIB)

    def configure(self, raw: Mapping[str, Any], switches: Mapping[str, bool]) -> None:
        super().configure(raw, switches)
        if min(self.cpu_weight, self.memory_weight) < 0:
            raise PluginError("cpu.weight and memory.weight must not be negative")
        limits = _Section("thresholds", self.thresholds, ("cpu", "mem"))
        self._most = (limits.number("cpu", 80.0, 0, 100), limits.number("mem", 80.0, 0, 100))
        given = _Section(
            "estimator",
            self.estimator,
            ("request_ratio", "burst_ratio", "risk_threshold", "risk_factor", "be_cpu", "be_mem"),
        )
        self._request_ratio = given.number("request_ratio", 0.7, 0, 1)
        self._burst_ratio = given.number("burst_ratio", 0.0, 0, 1)
        self._risk_threshold = given.number("risk_threshold", 0.6, 0, 1)
        self._risk_factor = given.number("risk_factor", 1.2, 1, 100)
        self._best_effort = (
            given.amount("be_cpu", 250.0, of_text=1000.0, of_number=1.0),
            given.amount("be_mem", 200.0 * MIB, of_text=1.0, of_number=MIB),
        )

    def open(self, session: Session) -> None:
        self._session = session
        loads = session.cluster.node_table.loads(USAGE_PERIOD_S)
        self._at_n = loads.at_n
        self._fresh_n = loads.is_fresh(session.now)
        self._real_dn: FloatArray = np.stack((loads.cpu_n, loads.memory_n))
        self._capacity_dn: FloatArray = np.stack(
            [session.nodes.allocatable(row) for row in _ROWS]
        ).copy()
        self._estimates: dict[TaskClass, tuple[FloatArray, FloatArray]] = {}
        self._shadow_dn: FloatArray = np.zeros_like(self._real_dn)
        self._risky_n: BoolArray = np.zeros(len(self._fresh_n), dtype=bool)
        self._unseen: set[str] = set()
        if self._fresh_n.any():
            self._cast_shadows()

    def _cast_shadows(self) -> None:
        """Add estimates of pods placed before this cycle that readings do not include yet."""
        session = self._session
        metrics = session.config.metrics or MetricsSource()
        since = session.now - metrics.interval_s
        placed: list[tuple[int, TaskClass]] = []
        for task in (session.cluster.node_table.recent or {}).values():
            node = session.cluster.nodes[task.node_name]
            is_seen = task.status == RUNNING and task.started <= since
            if node.is_known and not is_seen and task.status != RELEASING:
                placed.append((node.index, task.klass))
                self._unseen.add(task.uid)
        plain_dn = np.zeros_like(self._shadow_dn)
        for column, klass in placed:
            plain_dn[:, column] += self._estimate(klass)[0]
        load_n = self._weighed(self._composite(plain_dn, self._real_dn, self._capacity_dn))
        self._risky_n = load_n >= self._risk_threshold
        for column, klass in placed:
            self._shadow_dn[:, column] += self._estimate(klass)[int(self._risky_n[column])]

    # --- filter and score ---------------------------------------------------------------------

    def predicate(self, task: Task, nodes: Nodes) -> Iterator[tuple[BoolArray, str]]:
        for load_n, most, reason in zip(
            self._real_dn, self._most, (CPU_EXCEEDED, MEMORY_EXCEEDED), strict=True
        ):
            too_busy_n = self._fresh_n & (load_n > most)
            if too_busy_n.any():
                # Without new readings, the filter passes once these are stale.
                self._session.wake(float(self._at_n[too_busy_n].min()) + STALE_S + 1.0)
                yield too_busy_n, reason

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        real_dn, shadow_dn, capacity_dn = self._real_dn, self._shadow_dn, self._capacity_dn
        risky_n, fresh_n = self._risky_n, self._fresh_n
        if nodes.index is not None:
            index = nodes.index
            real_dn, shadow_dn, capacity_dn = (
                each[:, index] for each in (real_dn, shadow_dn, capacity_dn)
            )
            risky_n, fresh_n = risky_n[index], fresh_n[index]
            plain_d, raised_d = self._estimate(task.klass)
            each_dn = np.where(risky_n, raised_d[:, None], plain_d[:, None])
            shadow_dn = shadow_dn + each_dn * nodes.added
        free_n = 1.0 - self._weighed(self._composite(shadow_dn, real_dn, capacity_dn))
        out: FloatArray = np.where(fresh_n, free_n * MAX_SCORE * self.weight, 0.0)
        return out if self.cpu_weight + self.memory_weight else np.zeros_like(out)

    def allocated(self, task: Task, nodes: IntArray) -> None:
        if task.status in _NEW or task.uid in self._unseen:
            self._note(task, nodes, 1.0)

    def deallocated(self, task: Task, nodes: IntArray) -> None:
        # Readings include an evicted pod for a while, unless they never included it.
        if task.status != RELEASING or task.uid in self._unseen:
            self._note(task, nodes, -1.0)

    def _note(self, task: Task, nodes: IntArray, sign: float) -> None:
        plain_d, raised_d = self._estimate(task.klass)
        if len(nodes) == 1:  # plain numbers are much faster than arrays of one
            column = int(nodes[0])
            self._shadow_dn[:, column] += sign * (raised_d if self._risky_n[column] else plain_d)
            return
        more_dn = np.where(self._risky_n[nodes], raised_d[:, None], plain_d[:, None])
        for row_n, more_n in zip(self._shadow_dn, more_dn, strict=True):
            np.add.at(row_n, nodes, sign * more_n)

    # --- estimates ----------------------------------------------------------------------------

    def _composite(
        self, shadow_dn: FloatArray, real_dn: FloatArray, capacity_dn: FloatArray
    ) -> FloatArray:
        """Return the used or soon used fraction of CPU and memory, from 0 to 1."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found_dn = real_dn / 100.0 + shadow_dn / capacity_dn
        found_dn[capacity_dn <= 0] = 0.0
        out: FloatArray = np.clip(found_dn, 0.0, 1.0, out=found_dn)
        return out

    def _weighed(self, composite_dn: FloatArray) -> FloatArray:
        weights = max(self.cpu_weight + self.memory_weight, 1)
        out: FloatArray = composite_dn[0] * self.cpu_weight + composite_dn[1] * self.memory_weight
        return out / weights

    def _estimate(self, klass: TaskClass) -> tuple[FloatArray, FloatArray]:
        """Return the estimate of CPU and memory, on a normal node and on one near its limits. Whole
        thousandths and bytes, so that sums are exact."""
        known = self._estimates.get(klass)
        if known is None:
            known = self._estimates[klass] = (
                np.rint([self._guess(klass, row, 1.0) for row in _ROWS]),
                np.rint([self._guess(klass, row, self._risk_factor) for row in _ROWS]),
            )
        return known

    def _guess(self, klass: TaskClass, row: int, risk: float) -> float:
        dimension = _ROWS.index(row)
        if klass.is_best_effort:
            return self._best_effort[dimension] * risk
        request = klass.amount(row)
        limit = max(klass.limits[dimension], request)
        burst = limit - request
        guess = (request * self._request_ratio + burst * self._burst_ratio) * risk
        return min(max(guess, 0.0), limit)


class _Section:
    """A nested map of arguments."""

    def __init__(self, name: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        self._name = name
        self._given = given
        for key in given:
            if key not in known:
                raise PluginError(f"{name} has {key!r}; it may have: {', '.join(known)}")

    def number(self, key: str, default: float, least: float, most: float) -> float:
        value = self._given.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise PluginError(
                f"{self._name} has {key}: {value!r}; it must be from {least:g} to {most:g}"
            )
        return float(value)

    def amount(self, key: str, default: float, *, of_text: float, of_number: float) -> float:
        """Parse a quantity such as 250m or 200Mi; a bare number is in thousandths or MiB."""
        value = self._given.get(key)
        if value is None:
            return default
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise QuantityError(f"{value!r} is no quantity")
            found = parse_quantity(value).nanos / 1e9
        except QuantityError as error:
            raise PluginError(f"{self._name} has {key}: {error}") from None
        if found < 0:
            raise PluginError(f"{self._name} has {key}: {value!r}; it must not be negative")
        return found * (of_text if isinstance(value, str) else of_number)
