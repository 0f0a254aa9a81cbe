"""The job controller as a running part: watches in, `next_step`, effects out.

A job is handled by one worker at a time, and different jobs at once; pods are written with bounded
parallelism, over all jobs together.

What a newcomer gets wrong: every write that carries a decision names the resourceVersion that the
decision was made on. A conflict is no error: the job has changed, and is looked at again.
"""

from __future__ import annotations

import logging
from typing import Final

from hekla.api.wellknown import JobPhase, JobReason
from hekla.controllers.job import effects as do
from hekla.controllers.job.performer import Desk, Performer
from hekla.controllers.job.pods import group_name, queue_of
from hekla.controllers.job.sync import next_step
from hekla.controllers.job.view import JobView
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import (
    Key,
    controller_of,
    is_controlled_by,
    is_deleting,
    job_phase,
    key_of,
    uid_of,
)
from hekla.controllers.watched import OWNER, World, is_volcano_job_ref
from hekla.kube.errors import AlreadyExists, Conflict, NotFound
from hekla.kube.recorder import EventRecorder, reference
from hekla.kube.resources import (
    COMMANDS,
    JOBS,
    PERSISTENT_VOLUME_CLAIMS,
    PODGROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
)
from hekla.kube.workqueue import WorkQueue, run_workers
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

WORKERS: Final = 32
GATHER_COUNTS_S: Final = 0.1
MAX_TOLD: Final = 4096


class JobController:
    """Looks after all jobs. `run` it while the world is watched."""

    name = "job-controller"
    workers = WORKERS

    def __init__(
        self,
        world: World,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        gather_counts_s: float = GATHER_COUNTS_S,
    ) -> None:
        self._client = world.client
        self._clock = world.clock
        self._recorder = recorder
        self._metrics = metrics
        self._jobs = world.watch(JOBS)
        self._pods = world.watch(PODS)
        self._groups = world.watch(PODGROUPS)
        self._queues = world.watch(QUEUES)
        self._priorities = world.watch(PRIORITY_CLASSES)
        self._commands = world.watch(COMMANDS)
        self._desk = Desk(
            client=world.client,
            clock=world.clock,
            metrics=metrics,
            jobs=self._jobs,
            pods=self._pods,
            groups=self._groups,
            commands=self._commands,
            tell=self._tell,
            gather_counts_s=gather_counts_s,
        )
        self.queue: WorkQueue[Key] = WorkQueue(clock=world.clock)
        self._told: dict[tuple[str, str, str], None] = {}
        self._jobs.add_handler(self._on_job)
        for watched in (self._pods, self._groups):
            watched.add_handler(self._on_owned)
        self._commands.add_handler(self._on_command)

    async def run(self) -> None:
        """Until cancelled."""
        await run_workers(self.queue, self._sync, self.workers)

    def gather_counts_for(self, seconds: float) -> None:
        """How long mere counts wait for more of their kind; tests want none of that."""
        self._desk.gather_counts_s = seconds

    # Watching

    def _on_job(self, event: str, old: Object | None, new: Object | None) -> None:
        job = new or old
        assert job is not None
        if event == "DELETED":
            self._desk.forget(uid_of(job))
        self.queue.add(key_of(job))

    def _on_owned(self, event: str, old: Object | None, new: Object | None) -> None:
        obj = new or old
        assert obj is not None
        owner = controller_of(obj)
        if owner is not None and is_volcano_job_ref(owner):
            self.queue.add((key_of(obj)[0], owner["name"]))

    def _on_command(self, event: str, old: Object | None, new: Object | None) -> None:
        command = new or old
        assert command is not None
        target = command.get("target") or {}
        if is_volcano_job_ref(target):
            self.queue.add((key_of(command)[0], target["name"]))

    # Deciding

    async def _sync(self, key: Key) -> float | None:
        job = self._jobs.get(*key)
        if job is None or is_deleting(job):
            return None
        view = await self._view(job)
        try:
            effects = next_step(view)
        except ValueError as error:  # a plugin that cannot work with this job
            self._tell(job, do.Tell("Warning", JobReason.PLUGIN_ERROR, str(error)))
            raise
        try:
            return await Performer(self._desk, job).perform(effects)
        except AlreadyExists:
            raise
        except (Conflict, NotFound) as error:
            # Somebody else changed or removed it meanwhile; what is true now decides.
            log.debug("job %s/%s has changed: %s", *key, error)
            self._metrics.count("job_sync_conflicts")
            return 0.02
        except Exception:
            self._metrics.count("job_sync_errors")
            raise

    async def _view(self, job: Object) -> JobView:
        namespace, name = key_of(job)
        uid = uid_of(job)
        group = self._groups.get(namespace, group_name(job))
        if group is None:
            # Jobs that were submitted before Volcano 1.5 have a group of their own name.
            group = self._groups.get(namespace, name)
            if group is not None and not is_controlled_by(group, uid):
                group = None
        return JobView(
            job=job,
            now=self._clock.now(),
            group=group,
            pods=sorted(self._pods.by_index(OWNER, uid), key=key_of),
            commands=[
                command
                for command in self._commands.by_index("target", f"Job/{namespace}/{name}")
                if is_volcano_job_ref(command["target"])
                and (command["target"].get("uid") or uid) == uid
            ],
            queue=self._queues.get("", queue_of(job)),
            claims=await self._claims(job),
            priorities={
                each["metadata"]["name"]: int(each.get("value") or 0)
                for each in self._priorities.all()
            },
            ensured=self._desk.ensured.get(uid, ""),
        )

    async def _claims(self, job: Object) -> dict[str, bool]:
        """Whether the claims that a waiting job names exist: rare enough to ask the server."""
        if job_phase(job) not in ("", JobPhase.PENDING):
            return {}
        found: dict[str, bool] = {}
        for volume in job["spec"].get("volumes") or ():
            name = volume.get("volumeClaimName")
            if name and not volume.get("volumeClaim"):
                claim = await self._client.find(
                    PERSISTENT_VOLUME_CLAIMS, name, namespace=key_of(job)[0]
                )
                found[name] = claim is not None
        return found

    def _tell(self, job: Object, told: do.Tell) -> None:
        """An Event, once for each text: people want news."""
        mark = (uid_of(job), told.reason, told.message)
        if mark in self._told:
            return
        self._told[mark] = None
        if len(self._told) > MAX_TOLD:
            self._told.pop(next(iter(self._told)))
        self._recorder.event(reference(JOBS, job), told.type, told.reason, told.message)
