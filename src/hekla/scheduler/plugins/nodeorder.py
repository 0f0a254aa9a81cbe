"""nodeorder: kube-scheduler's scores, each with a weight.

Scores are integers, truncated like kube-scheduler's integer division, so that nodes tie where they
tie there. The first node by name wins a tie (Volcano chooses at random).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from hekla.api.wellknown import NVIDIA_GPU
from hekla.scheduler.framework.answers import Normalized
from hekla.scheduler.framework.arguments import Key
from hekla.scheduler.framework.nodes import Nodes
from hekla.scheduler.framework.plugin import Plugin
from hekla.scheduler.plugins.predicates import affinity
from hekla.scheduler.state.dimensions import CPU, MEMORY, FloatArray, IntArray
from hekla.scheduler.state.model import Task

if TYPE_CHECKING:
    from hekla.scheduler.session.session import Session

MAX_SCORE = 100.0
MIN_IMAGE_BYTES = 23.0 * 2**20
MAX_IMAGE_BYTES = 1000.0 * 2**20


class NodeOrder(Plugin, name="nodeorder"):
    """The sum of weighted scores; a weight of 0 disables a score."""

    by_class: ClassVar[bool] = True

    least_requested: Annotated[int, Key("leastrequested.weight")] = 1
    most_requested: Annotated[int, Key("mostrequested.weight")] = 0
    node_affinity: Annotated[int, Key("nodeaffinity.weight")] = 2
    pod_affinity: Annotated[int, Key("podaffinity.weight")] = 2
    balanced_resource: Annotated[int, Key("balancedresource.weight")] = 1
    taint_toleration: Annotated[int, Key("tainttoleration.weight")] = 3
    image_locality: Annotated[int, Key("imagelocality.weight")] = 1
    pod_topology_spread: Annotated[int, Key("podtopologyspread.weight")] = 2

    def open(self, session: Session) -> None:
        self._session = session
        self._gpu = session.dimensions.row(NVIDIA_GPU)

    def node_order(self, task: Task, nodes: Nodes) -> FloatArray:
        total_n = np.zeros(len(nodes))
        if self.least_requested or self.most_requested:
            total_n += self._requested(task, nodes)
        if self.balanced_resource and not task.is_best_effort:
            total_n += self.balanced_resource * self._balanced(task, nodes)
        if self.image_locality and self._session.cluster.node_table.has_images:
            images_n = task.klass.static(
                "images",
                self._session.cluster.node_table.images_version,
                lambda: self._images(task),
            )
            total_n += self.image_locality * nodes.take(images_n)
        return total_n

    def _requested(self, task: Task, nodes: Nodes) -> FloatArray:
        """LeastAllocated and MostAllocated over cpu and memory."""
        least_n, most_n = np.zeros(len(nodes)), np.zeros(len(nodes))
        offered_n = np.zeros(len(nodes))
        asked = (task.klass.nonzero_cpu, task.klass.nonzero_memory)
        for row in (CPU, MEMORY):
            allocatable_n = nodes.allocatable(row)
            after_n = nodes.nonzero_used(row) + asked[row]
            has_n = allocatable_n > 0
            safe_n = np.where(has_n, allocatable_n, 1.0)
            free_n = np.maximum(allocatable_n - after_n, 0.0)
            least_n += np.floor(free_n * MAX_SCORE / safe_n)
            if self.most_requested:
                most_n += np.floor(np.minimum(after_n, allocatable_n) * MAX_SCORE / safe_n)
            offered_n += has_n
        np.maximum(offered_n, 1.0, out=offered_n)
        out: FloatArray = self.least_requested * np.floor(least_n / offered_n)
        if self.most_requested:
            out += self.most_requested * np.floor(most_n / offered_n)
        return out

    def _balanced(self, task: Task, nodes: Nodes) -> FloatArray:
        """BalancedAllocation over cpu, memory and GPU: 100 minus the spread of the fractions."""
        rows = [CPU, MEMORY]
        if self._gpu is not None and task.klass.request_r[self._gpu] > 0:
            rows.append(self._gpu)
        fractions = []
        has = []
        for row in rows:
            allocatable_n = nodes.allocatable(row)
            has_n = allocatable_n > 0
            after_n = nodes.used(row) + task.klass.request_r[row]
            fractions.append(np.minimum(after_n / np.where(has_n, allocatable_n, 1.0), 1.0))
            has.append(has_n)
        if len(rows) == 2:
            both_n = has[0] & has[1]
            spread_n = np.where(both_n, np.abs(fractions[0] - fractions[1]) / 2.0, 0.0)
        else:
            has_kn = np.asarray(has, dtype=np.float64)
            fraction_kn = np.asarray(fractions) * has_kn
            count_n = np.maximum(has_kn.sum(axis=0), 1.0)
            mean_n = fraction_kn.sum(axis=0) / count_n
            squares_n = (((fraction_kn - mean_n) * has_kn) ** 2).sum(axis=0)
            spread_n = np.sqrt(squares_n / count_n)
        out: FloatArray = np.floor((1.0 - spread_n) * MAX_SCORE)
        return out

    def _images(self, task: Task) -> FloatArray:
        """ImageLocality: the size of the images on the node, weighted by how common they are."""
        index = self._session.cluster.node_table.image_index()
        total = len(self._session.nodes)
        sum_n = np.zeros(total)
        for image in task.klass.images:
            name = image if ":" in image.rsplit("/", 1)[-1] else f"{image}:latest"
            found = index.get(name)
            if found is not None:
                nodes, sizes = found
                sum_n[nodes] += np.floor(sizes * (len(nodes) / total))
        top = MAX_IMAGE_BYTES * max(len(task.klass.images), 1)
        clamped_n = np.clip(sum_n, MIN_IMAGE_BYTES, top)
        out: FloatArray = np.floor(
            MAX_SCORE * (clamped_n - MIN_IMAGE_BYTES) / (top - MIN_IMAGE_BYTES)
        )
        return out

    def batch_node_order(
        self, task: Task, nodes: Nodes, candidates: IntArray
    ) -> list[Normalized | FloatArray]:
        """Return the scores that are normalized over the candidates."""
        klass, cluster = task.klass, self._session.cluster
        parts: list[Normalized | FloatArray] = []
        preferred = klass.affinity.node_affinity.preferred if klass.affinity.node_affinity else ()
        if self.node_affinity and preferred:
            raw_n = klass.static(
                "preferred nodes", cluster.node_table.labels_version, self._affine(task)
            )
            parts.append(Normalized(raw_n, float(self.node_affinity)))
        if self.taint_toleration:
            raw_n = klass.static(
                "preferred taints",
                cluster.node_table.labels_version,
                lambda: cluster.node_table.labels.intolerable(
                    klass.tolerations, ("PreferNoSchedule",)
                ),
            )
            if raw_n.any():
                parts.append(Normalized(raw_n, float(self.taint_toleration), reverse=True))
        if cluster.term_classes and len(candidates):
            if self.pod_affinity:
                raw_n = affinity.preference(self._session, task)
                if raw_n is not None:
                    parts.append(self._between(raw_n, candidates, self.pod_affinity))
            if self.pod_topology_spread:
                raw_n = affinity.spread_score(self._session, task)
                if raw_n is not None:
                    parts.append(self._topology_spread(raw_n, candidates))
        return parts

    def _affine(self, task: Task):  # type: ignore[no-untyped-def]
        def compute() -> FloatArray:
            labels = self._session.cluster.node_table.labels
            raw_n = np.zeros(len(self._session.nodes))
            assert task.klass.affinity.node_affinity is not None
            for term in task.klass.affinity.node_affinity.preferred:
                raw_n += term.weight * labels.matches_term(term.preference)
            return raw_n

        return compute

    def _between(self, raw_n: FloatArray, candidates: IntArray, weight: int) -> FloatArray:
        low, high = float(raw_n[candidates].min()), float(raw_n[candidates].max())
        if high == low:
            return np.zeros(len(raw_n))
        out: FloatArray = weight * np.floor(MAX_SCORE * (raw_n - low) / (high - low))
        return out

    def _topology_spread(self, raw_n: FloatArray, candidates: IntArray) -> FloatArray:
        low, high = float(raw_n[candidates].min()), float(raw_n[candidates].max())
        if math.isinf(high) or high == 0:
            return np.where(np.isinf(raw_n), 0.0, MAX_SCORE) * self.pod_topology_spread
        out: FloatArray = np.floor(MAX_SCORE * (high + low - np.minimum(raw_n, high)) / high)
        return out * self.pod_topology_spread
