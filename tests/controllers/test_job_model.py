"""A model plays kubelet, user and scheduler at random against the pure decisions.

The controller's effects are applied whole or, as after a crash, in part. Invariants at all times:
retries within bounds, finished jobs stay finished, versions only grow. Invariants when the
controller is idle: the counts match the pods, and no surplus pod exists.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hekla.api import wellknown
from hekla.api.wellknown import JobPhase
from hekla.controllers.job.effects import (
    CreateGroup,
    CreatePod,
    DeleteGroup,
    DeletePod,
    Effect,
    EmitEvent,
    FinishCommand,
    MarkPod,
    PatchGroup,
    PatchJob,
    RequeueAfter,
    SetStatus,
)
from hekla.controllers.job.sync import next_step
from hekla.controllers.job.view import JobView, count, is_finished, version_of
from hekla.units.objects import Object
from hekla.units.patches import merge_patch
from hekla.units.timestamps import format_time

from .builders import NOW, command, job, task

ACTIONS = sorted(wellknown.Action.IN_POLICIES)
EVENTS = ["PodFailed", "PodEvicted", "TaskCompleted", "TaskFailed", "Unknown", "*"]
STEPS_TO_REST = 40


class JobModel(RuleBasedStateMachine):
    @initialize(
        policies=st.lists(
            st.tuples(st.sampled_from(EVENTS), st.sampled_from(ACTIONS), st.booleans()),
            max_size=3,
            unique_by=lambda each: each[0],
        ),
        max_retry=st.integers(0, 3),
        least=st.integers(0, 4),
        min_success=st.none() | st.integers(1, 4),
        partitions=st.booleans(),
    )
    def submit(
        self,
        policies: list[tuple[str, str, bool]],
        max_retry: int,
        least: int,
        min_success: int | None,
        partitions: bool,
    ) -> None:
        parts = {"totalPartitions": 2, "partitionSize": 1} if partitions else None
        extra: Object = {"partitionPolicy": parts} if parts else {}
        tasks = [task("a", 2, minAvailable=min(2, least), **extra), task("b", 2, minAvailable=1)]
        more: Object = {"minSuccess": min_success} if min_success else {}
        self.job = job(
            tasks=tasks,
            maxRetry=max_retry,
            minAvailable=least,
            policies=[
                {"event": event, "action": action, **({"timeout": "30s"} if late else {})}
                for event, action, late in policies
            ],
            **more,
        )
        self.group: Object | None = None
        self.pods: dict[str, Object] = {}
        self.commands: list[Object] = []
        self.now = NOW
        self.serial = 0
        self.finished: str | None = None
        self.version = 0

    # The controller

    def _view(self) -> JobView:
        return JobView(
            self.job,
            self.now,
            group=self.group,
            pods=sorted(self.pods.values(), key=lambda pod: pod["metadata"]["name"]),
            commands=list(self.commands),
            ensured="uid-train/1",
        )

    def _step(self, at_most: int | None = None) -> bool:
        effects = next_step(self._view())
        for effect in effects[:at_most]:
            self._perform(effect)
        self._check_history()
        return any(not isinstance(effect, EmitEvent | RequeueAfter) for effect in effects)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SetStatus(patch):
                self.job = {**self.job, "status": merge_patch(self.job["status"], patch)}
            case PatchJob(patch):
                self.job = merge_patch(self.job, patch)
            case CreateGroup(body):
                self.group = {**body, "status": {}}
            case PatchGroup(_, patch):
                assert self.group is not None
                self.group = merge_patch(self.group, patch)
            case DeleteGroup():
                self.group = None
            case CreatePod(body):
                name = body["metadata"]["name"]
                assert name not in self.pods, "a pod is created only when its name is free"
                self.serial += 1
                metadata = {
                    **body["metadata"],
                    "uid": f"u{self.serial}",
                    "creationTimestamp": format_time(self.now),
                }
                self.pods[name] = {
                    **body, "metadata": metadata, "status": {"phase": "Pending"},
                }  # fmt: skip
            case MarkPod(pod):
                self._annotate(pod["metadata"]["name"], {wellknown.OUT_OF_SYNC: "true"})
            case DeletePod(pod):
                self._leave(pod["metadata"]["name"])
            case FinishCommand(done):
                self.commands.remove(done)

    def _annotate(self, name: str, marks: dict[str, str]) -> None:
        self.pods[name] = merge_patch(self.pods[name], {"metadata": {"annotations": marks}})

    def _leave(self, name: str) -> None:
        patch = {"metadata": {"deletionTimestamp": format_time(self.now)}}
        self.pods[name] = merge_patch(self.pods[name], patch)

    def _check_history(self) -> None:
        status = self.job["status"]
        assert status.get("retryCount", 0) <= self.job["spec"]["maxRetry"]
        assert status.get("version", 0) >= self.version
        self.version = status.get("version", 0)
        phase = (status.get("state") or {}).get("phase")
        if self.finished is not None:
            assert phase == self.finished, "finished jobs stay finished"
        elif phase in JobPhase.FINISHED:
            self.finished = phase

    @rule()
    def step(self) -> None:
        self._step()

    @rule(at_most=st.integers(0, 5))
    def crash_in_a_step(self, at_most: int) -> None:
        self._step(at_most)

    # The cluster

    def _named(self, data: st.DataObject, *phases: str) -> str | None:
        names = [
            name
            for name, pod in sorted(self.pods.items())
            if pod["status"]["phase"] in phases and "deletionTimestamp" not in pod["metadata"]
        ]
        return data.draw(st.sampled_from(names)) if names else None

    @rule(data=st.data(), phase=st.sampled_from(["Running", "Running", "Succeeded", "Failed"]))
    def kubelet(self, data: st.DataObject, phase: str) -> None:
        name = self._named(data, "Pending", "Running")
        if name is not None:
            state = {"terminated": {"exitCode": 1, "finishedAt": format_time(self.now)}}
            container: Object = {"name": "main", "ready": True, "restartCount": self.serial % 2}
            if phase in ("Succeeded", "Failed"):
                container["state"] = state
            status = {"phase": phase, "containerStatuses": [container]}
            self.pods[name] = {**self.pods[name], "status": status}

    @rule()
    def leaving_pods_go(self) -> None:
        self.pods = {
            name: pod
            for name, pod in self.pods.items()
            if "deletionTimestamp" not in pod["metadata"]
        }

    @rule(data=st.data(), force=st.booleans())
    def somebody_deletes_a_pod(self, data: st.DataObject, force: bool) -> None:
        name = self._named(data, "Pending", "Running", "Failed", "Succeeded")
        if name is not None and force:
            del self.pods[name]
        elif name is not None:
            self._leave(name)

    @rule(phase=st.sampled_from(["Inqueue", "Inqueue", "Running", "Unknown", "Pending"]))
    def scheduler(self, phase: str) -> None:
        if self.group is not None:
            self.group = {**self.group, "status": {"phase": phase}}

    @precondition(lambda self: len(self.commands) < 2)
    @rule(action=st.sampled_from(ACTIONS))
    def user_commands(self, action: str) -> None:
        self.serial += 1
        self.commands.append(command(action, self.job, f"c{self.serial}"))

    @rule(replicas=st.integers(1, 3))
    def user_scales(self, replicas: int) -> None:
        tasks = self.job["spec"]["tasks"]
        if "partitionPolicy" in tasks[1]:
            return
        changed = {**tasks[1], "replicas": replicas, "minAvailable": 1}
        spec = {**self.job["spec"], "tasks": [tasks[0], changed]}
        total = tasks[0]["replicas"] + replicas
        spec["minAvailable"] = min(spec["minAvailable"], total)
        self.job = {**self.job, "spec": spec}

    @rule(seconds=st.sampled_from([1.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def everything_comes_to_rest(self) -> None:
        for _ in range(STEPS_TO_REST):
            self.leaving_pods_go()
            if self.group is not None and self.group["status"].get("phase") in (None, "Pending"):
                self.scheduler("Inqueue")
            if not self._step():
                break
        else:
            raise AssertionError(f"the controller never rests: {next_step(self._view())}")
        self._check_rest()

    def _check_rest(self) -> None:
        status = self.job["status"]
        pods = list(self.pods.values())
        counts = count(pods)
        phase = status["state"]["phase"]
        for name in ("pending", "running", "terminating", "unknown"):
            assert status.get(name, 0) == getattr(counts, name), name
        for name in ("succeeded", "failed"):
            found = getattr(counts, name)
            if phase in JobPhase.FINISHED:
                assert status.get(name, 0) >= found, name
            else:
                assert status.get(name, 0) == found, name
        assert self.commands == [], "every command was carried out or rejected"
        wanted = {
            f"train-{each['name']}-{index}"
            for each in self.job["spec"]["tasks"]
            for index in range(each["replicas"])
        }
        if phase in (JobPhase.PENDING, JobPhase.RUNNING):
            assert set(self.pods) == wanted
            assert all(is_finished(pod) or version_of(pod) >= self.version for pod in pods)
        else:
            assert phase in (*JobPhase.FINISHED, JobPhase.ABORTED)
            assert all(is_finished(pod) for pod in pods), "no pod runs"
            assert self.group is None

    @invariant()
    def pods_are_known(self) -> None:
        assert all(pod["metadata"]["uid"] for pod in getattr(self, "pods", {}).values())


JobModel.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
TestJobModel = JobModel.TestCase
