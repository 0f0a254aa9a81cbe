"""One pod on this machine, from acceptance to its last exit code.

The worker is the edge: it asks `lifecycle.next_step` what to do, does it, and notes what came of it
in a record on disk before it goes on, so that an agent that dies at any point finds its pods again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from hekla.api.usage import pod_limits
from hekla.api.wellknown import PodPhase
from hekla.nodeagent import lifecycle, probes, processes, sandbox
from hekla.nodeagent.cgroups import Cgroups, Group, Limits
from hekla.nodeagent.environment import (
    MissingReference,
    Sources,
    command_line,
    container_environment,
)
from hekla.nodeagent.images import Environment, Images, NotMapped
from hekla.nodeagent.lifecycle import ContainerRecord, Over, PodRecord, Run, Start, Stop, Wake
from hekla.nodeagent.logs import LogFile
from hekla.nodeagent.machine import GPU_NOTE, Gpus, NotEnough, gpus_wanted
from hekla.nodeagent.network import BridgeNetwork, NetworkError
from hekla.nodeagent.processes import Process
from hekla.nodeagent.status import pod_status
from hekla.nodeagent.volumes import VolumeError, Volumes
from hekla.units.clock import Clock
from hekla.units.quantity import parse_quantity

log = logging.getLogger("hekla.nodeagent")

RETRY_S = 2.0
LOG_CHECK_S = 1.0
DEFAULT_GRACE_S = 30
MAX_PROCESSES = 32_768
Object = dict[str, Any]


@dataclass
class Surroundings:
    """What a worker needs of its agent."""

    directory: Path
    clock: Clock
    images: Images
    cgroups: Cgroups
    isolate: sandbox.Way
    network: BridgeNetwork | None
    """None where pods share the machine's network."""
    gpus: Gpus
    node: Object
    report: Callable[[Object, Object], Awaitable[None]]
    """(pod, status) -> to the API."""
    fetch_sources: Callable[[Object], Awaitable[Sources]]
    event: Callable[[Object, Literal["Normal", "Warning"], str, str], None]
    """(pod, type, reason, message)"""


class PodWorker:
    """Runs one pod. `run` returns when nothing of it runs any more."""

    def __init__(self, pod: Object, around: Surroundings, address: str) -> None:
        self.pod = pod
        self._around = around
        self._address = address
        self._directory = around.directory / "pods" / str(pod["metadata"]["uid"])
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: dict[str, Process] = {}
        self._groups: dict[str, Group] = {}
        self._logs: dict[str, LogFile] = {}
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._sources: Sources | None = None
        self._volumes: dict[str, Path] | None = None
        self._reported: Object | None = None
        self._grace_s: float | None = None
        self.phase: str = PodPhase.PENDING
        self.record = self._load() or PodRecord(accepted_at=around.clock.now())

    # The record on disk

    def _load(self) -> PodRecord | None:
        try:
            return msgspec.json.decode(
                (self._directory / "record.json").read_bytes(), type=PodRecord
            )
        except (OSError, msgspec.MsgspecError):
            return None

    def _save(self) -> None:
        path = self._directory / "record.json"
        temporary = path.with_suffix(".new")
        temporary.write_bytes(msgspec.json.encode(self.record))
        temporary.replace(path)

    # From outside

    def stop(self, grace_s: float) -> None:
        """Ask the pod to end; a shorter grace overrides a longer one."""
        if self._grace_s is None or grace_s < self._grace_s:
            self._grace_s = grace_s
        if self.record.stop_asked_at is None:
            self.record.stop_asked_at = self._around.clock.now()
        self._changed.set()

    def log_of(self, container: str, *, previous: bool = False) -> LogFile | None:
        """The output of a container's current or previous run."""
        known = self.record.of(container)
        run = known.last if previous else known.current
        if run is None:
            return None
        current = self._logs.get(container)
        path = self._path(container, run.attempt, "log")
        return current if current is not None and current.path == path else LogFile(path)

    def process_of(self, container: str) -> Process | None:
        return self._processes.get(container)

    def inside(self, container: str, command: list[str]) -> tuple[list[str], dict[str, str]]:
        """The command line and variables that run something in a running container."""
        spec = self._container(container)
        process = self._processes[container]
        environment, variables = self._environment(spec)
        directory = self._working_directory(spec)
        root = environment.path if environment.kind == "rootfs" else ""
        line = sandbox.enter(
            process.pid, directory, command, isolate=self._around.isolate, root=root
        )
        return line, variables

    async def _entered(self, name: str) -> None:
        """Wait until the set-up of a container that was just started is through."""
        process, run = self._processes.get(name), self.record.of(name).current
        assert run is not None
        up = self._path(name, run.attempt, "up")
        while process is not None and process.is_alive and not up.exists():
            await self._around.clock.sleep(0.005)

    def detach(self) -> None:
        """Leave everything running and forget it: the agent is going, the pod is not."""
        for task in [*self._tasks, *self._probing.values()]:
            task.cancel()

    def remove(self) -> None:
        """Everything the pod left on this machine."""
        self._leave_network()
        for group in self._around.cgroups.of(self.pod["metadata"]["uid"]):
            group.kill()
            group.remove()
        shutil.rmtree(self._directory, ignore_errors=True)

    # The loop

    async def run(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._adopt()
        while True:
            now = self._around.clock.now()
            effects = lifecycle.next_step(self.pod, self.record, now)
            self._changed.clear()
            wake_at: float | None = None
            for effect in effects:
                match effect:
                    case Start(name):
                        wake_at = await self._start(name) or wake_at
                    case Stop(name):
                        self._begin_stop(name)
                    case Wake(at):
                        wake_at = at if wake_at is None else min(wake_at, at)
                    case Over(phase):
                        self.phase = phase
            self._save()
            if self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED):
                self._clean_up()
                await self._report()
                return
            if any(record.is_running for record in self.record.containers.values()):
                self.phase = PodPhase.RUNNING if self._is_initialized() else PodPhase.PENDING
            await self._report()
            if not any(isinstance(effect, Start) for effect in effects) or wake_at is not None:
                await self._wait(wake_at)  # else ask again: what started may let others start

    def _is_initialized(self) -> bool:
        return any(self.record.of(c["name"]).current for c in self.pod["spec"]["containers"])

    async def _wait(self, wake_at: float | None) -> None:
        if wake_at is None:
            await self._changed.wait()
            return
        delay = max(0.0, wake_at - self._around.clock.now())
        timer = asyncio.ensure_future(self._around.clock.sleep(delay))
        change = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({timer, change}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            change.cancel()

    def _clean_up(self) -> None:
        for task in [*self._tasks, *self._probing.values()]:
            task.cancel()
        for group in self._groups.values():
            group.kill()
            group.remove()
        self._leave_network()

    def _leave_network(self) -> None:
        if self._around.network is not None:
            self._around.network.remove(self.pod["metadata"]["uid"])

    async def _report(self) -> None:
        status = pod_status(
            self.pod,
            self.record,
            phase=self.phase,
            pod_ip=self._address,
            host_ip="127.0.0.1",
            now=self._around.clock.now(),
        )
        if status != self._reported:
            self._reported = status
            await self._around.report(self.pod, status)

    # Starting

    def _container(self, name: str) -> Object:
        spec = self.pod["spec"]
        found: Object = next(
            c for c in [*spec["containers"], *(spec.get("initContainers") or ())]
            if c["name"] == name
        )  # fmt: skip
        return found

    def _path(self, container: str, attempt: int, kind: str) -> Path:
        return self._directory / "containers" / container / f"{attempt}.{kind}"

    def _group_name(self, container: str) -> str:
        return f"{self.pod['metadata']['uid']}-{container}"

    async def _start(self, name: str) -> float | None:
        """Start a container, or note why it cannot be; the time to try again, if any."""
        container, known = self._container(name), self.record.of(name)
        try:
            self._take_gpus()
            await self._prepare()
            command, variables, environment = self._command(container)
            network = self._network()
        except (MissingReference, NotEnough, VolumeError) as error:
            return self._hold(known, "CreateContainerConfigError", str(error))
        except NotMapped as error:
            return self._hold(known, "ImageNotMapped", str(error))
        known.waiting_reason = known.waiting_message = ""
        attempt = known.runs
        self._path(name, attempt, "log").parent.mkdir(parents=True, exist_ok=True)
        if known.current is not None:
            known.last = known.current
            self._path(name, attempt - 2, "log").unlink(missing_ok=True)  # one previous is kept
        group = self._around.cgroups.make(self._group_name(name), _limits(container))
        up = self._path(name, attempt, "up")
        up.unlink(missing_ok=True)
        variables = {**variables, "HEKLA_UP": str(up)}
        variables |= sandbox.variables(self._around.isolate)
        if group is not None:
            self._groups[name] = group
            variables = {**variables, "HEKLA_CGROUPS": " ".join(map(str, group.paths))}
        line = sandbox.wrap(
            command,
            exit_file=self._path(name, attempt, "exit"),
            directory=self._working_directory(container),
            hostname=self._hostname,
            mounts=self._mounts(container),
            scratch=self._scratch(name),
            root=environment.path if environment.kind == "rootfs" else "",
            network=network,
            isolate=self._around.isolate,
        )
        now = self._around.clock.now()
        known.current = Run(attempt, now)
        known.started = "startupProbe" not in container
        known.ready = known.started and "readinessProbe" not in container
        known.stopping = False
        self._save()  # before the process: an agent that dies here must not start it twice
        process = processes.spawn(line, variables, self._path(name, attempt, "log"))
        self._path(name, attempt, "proc").write_text(f"{process.pid} {process.born}")
        self._watch(name, process)
        self._around.event(self.pod, "Normal", "Started", f"Started container {name}")
        return None

    def _hold(self, known: ContainerRecord, reason: str, message: str) -> float:
        if known.waiting_message != message:
            self._around.event(self.pod, "Warning", reason, message)
        known.waiting_reason, known.waiting_message = reason, message
        if known.current is None:
            # `next_step` leaves a held container alone; the retry lifts the hold.
            loop = asyncio.get_running_loop()
            loop.call_later(RETRY_S, self._lift, known)
        return self._around.clock.now() + RETRY_S

    def _lift(self, known: ContainerRecord) -> None:
        known.waiting_reason = ""
        self._sources = self._volumes = None
        self._changed.set()

    def _take_gpus(self) -> None:
        """Noted on disk before they are used, so that the next agent gives them to nobody else."""
        if wanted := gpus_wanted(self.pod):
            given = self._around.gpus.give(self.pod["metadata"]["uid"], wanted)
            (self._directory / GPU_NOTE).write_text(" ".join(map(str, given)))

    async def _prepare(self) -> None:
        """Volumes and sources, once; again only if something was missing."""
        if self._sources is None:
            self._sources = await self._around.fetch_sources(self.pod)
        if self._volumes is None:
            volumes = Volumes(
                self.pod,
                self._directory / "volumes",
                self._around.directory / "claims",
                self._sources,
            )
            self._volumes = volumes.make(node=self._around.node, pod_ip=self._address)

    def _network(self) -> Path | None:
        """The pod's own network; made with its first container, gone with the pod."""
        network = self._around.network
        if network is None or self.pod["spec"].get("hostNetwork"):
            return None
        try:
            return network.add(self.pod["metadata"]["uid"], self._address)
        except NetworkError as error:
            raise VolumeError(f"the pod's network cannot be made: {error}") from error

    @property
    def _hostname(self) -> str:
        return str(self.pod["spec"].get("hostname") or self.pod["metadata"]["name"])

    def _environment(self, container: Object) -> tuple[Environment, dict[str, str]]:
        assert self._sources is not None
        environment = self._around.images.resolve(container["image"])
        base = environment.variables(dict(os.environ))
        base["HOSTNAME"] = self._hostname
        base["HEKLA_POD_UID"] = self.pod["metadata"]["uid"]
        if gpus := self._around.gpus.taken.get(self.pod["metadata"]["uid"]):
            base["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
        made = container_environment(
            self.pod,
            container,
            self._sources,
            base=base,
            node=self._around.node,
            pod_ip=self._address,
        )
        for mount in () if self._isolated else container.get("volumeMounts") or ():
            # Without a mount namespace a volume is not at its mount path: say where it is.
            assert self._volumes is not None
            key = "HEKLA_VOLUME_" + mount["name"].upper().replace("-", "_")
            made[key] = str(self._volumes[mount["name"]])
        return environment, made

    def _command(self, container: Object) -> tuple[list[str], dict[str, str], Environment]:
        environment, variables = self._environment(container)
        command = command_line(container, variables)
        if not command:
            raise VolumeError(
                f"container {container['name']!r} has no command: an image that is mapped to this "
                "machine has no entry point of its own; write command"
            )
        return command, variables, environment

    def _working_directory(self, container: Object) -> str:
        return str(container.get("workingDir") or self._home())

    def _home(self) -> Path:
        home = self._directory / "work"
        home.mkdir(exist_ok=True)
        return home

    def _no_name_server(self) -> Path:
        """For pods that reach no server of names: being refused at once beats waiting for none."""
        path = self._around.directory / "resolv.conf"
        if not path.exists():
            path.write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        return path

    @property
    def _isolated(self) -> bool:
        return self._around.isolate != "none"

    def _scratch(self, container: str) -> Path:
        """Where the container makes mount paths that the machine does not have."""
        scratch = self._directory / "containers" / container / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        return scratch

    def _mounts(self, container: Object) -> list[sandbox.Mount]:
        assert self._volumes is not None
        hosts = self._around.directory / "hosts" / self.pod["metadata"]["namespace"]
        mounts = [sandbox.Mount(hosts, "/etc/hosts")] if hosts.exists() else []
        if self._around.network is not None and not self._around.network.reaches_out:
            mounts.append(sandbox.Mount(self._no_name_server(), "/etc/resolv.conf"))
        for mount in container.get("volumeMounts") or ():
            source = self._volumes[mount["name"]]
            if mount.get("subPath"):
                source = source / mount["subPath"]
                if not source.exists():
                    source.mkdir(parents=True)
            mounts.append(sandbox.Mount(source, mount["mountPath"], bool(mount.get("readOnly"))))
        return mounts

    # Watching

    def _adopt(self) -> None:
        """Take up containers that an earlier agent started."""
        for name, known in self.record.containers.items():
            known.stopping = False
            run = known.current
            if run is None or run.is_over:
                continue
            group = self._around.cgroups.find(self._group_name(name))
            if group is not None:
                self._groups[name] = group
            process = self._find_process(name, run.attempt)
            if process is not None:
                self._watch(name, process)
            else:
                lifecycle.never_began(known)

    def _find_process(self, name: str, attempt: int) -> Process | None:
        """The process of a run, alive or ended; None if the earlier agent died before it began."""
        try:
            pid, born = self._path(name, attempt, "proc").read_text().split()
            return Process(int(pid), int(born))
        except (OSError, ValueError):
            pass
        if self._path(name, attempt, "exit").exists():
            return Process(0, -1)
        return processes.find("HEKLA_UP", str(self._path(name, attempt, "up")))

    def _watch(self, name: str, process: Process) -> None:
        self._processes[name] = process
        run = self.record.of(name).current
        assert run is not None
        self._logs[name] = LogFile(self._path(name, run.attempt, "log"))
        self._spawn(self._await_exit(name, process))
        self._spawn(self._keep_log(name, process))
        container = self._container(name)
        kinds = ("startupProbe", "livenessProbe", "readinessProbe")
        if any(kind in container for kind in kinds):
            self._probing[name] = asyncio.create_task(self._probe(name, container))

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await_exit(self, name: str, process: Process) -> None:
        seen = await processes.wait(process)
        known = self.record.of(name)
        run = known.current
        assert run is not None
        run.exit_code = processes.exit_code(self._path(name, run.attempt, "exit"), seen)
        run.finished_at = self._around.clock.now()
        group = self._groups.pop(name, None)
        if group is not None:
            if run.exit_code == processes.KILLED and group.out_of_memory():
                run.reason = "OOMKilled"
            group.kill()
            group.remove()
        if run.exit_code in (126, 127, 128) and not run.reason:
            run.reason = "StartError"
            run.message = self._last_words(name)
        lifecycle.ended(known, run.finished_at)
        if name in self._probing:
            self._probing.pop(name).cancel()
        self._processes.pop(name, None)
        self._changed.set()

    def _last_words(self, name: str) -> str:
        file = self._logs[name]
        with contextlib.suppress(OSError):
            return b"".join(file.read(file.tail(3)))[-500:].decode(errors="replace").strip()
        return ""

    async def _keep_log(self, name: str, process: Process) -> None:
        """Note the times of output, and keep it within bounds."""
        file = self._logs[name]
        while process.is_alive:
            file.mark(self._around.clock.now())
            with contextlib.suppress(OSError):
                file.bound()
            await self._around.clock.sleep(LOG_CHECK_S)

    async def _probe(self, name: str, container: Object) -> None:
        """Startup first; then liveness and readiness side by side."""
        known = self.record.of(name)
        ports = {p["name"]: p["containerPort"] for p in container.get("ports") or () if "name" in p}

        async def execute(command: list[str]) -> int:
            await self._entered(name)
            line, variables = self.inside(name, command)
            child = await asyncio.create_subprocess_exec(
                *line,
                env=variables,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                return await child.wait()
            finally:
                if child.returncode is None:
                    child.kill()

        async def watch(kind: str, on_change: Callable[[bool], bool]) -> None:
            probe = container.get(kind)
            if probe is None:
                return
            await self._around.clock.sleep(probe.get("initialDelaySeconds") or 0)
            good = bad = 0
            while known.is_running:
                ok = await probes.check(probe, self._address, ports, execute)
                good, bad = (good + 1, 0) if ok else (0, bad + 1)
                if ok and good >= (probe.get("successThreshold") or 1) and on_change(True):
                    return
                if not ok and bad >= (probe.get("failureThreshold") or 3) and on_change(False):
                    return
                await self._around.clock.sleep(probe.get("periodSeconds") or 10)

        def started(ok: bool) -> bool:
            if not ok:
                return self._unhealthy(name, "Startup")
            known.started = True
            known.ready = "readinessProbe" not in container
            self._changed.set()
            return True

        def ready(ok: bool) -> bool:
            if known.ready != ok:
                known.ready = ok
                self._changed.set()
            return False

        await watch("startupProbe", started)
        if known.started or "startupProbe" not in container:
            await asyncio.gather(
                watch("livenessProbe", lambda ok: not ok and self._unhealthy(name, "Liveness")),
                watch("readinessProbe", ready),
            )

    def _unhealthy(self, name: str, kind: str) -> bool:
        message = f"{kind} probe of container {name} failed; it will be stopped"
        self._around.event(self.pod, "Warning", "Unhealthy", message)
        self._begin_stop(name)
        return True

    # Stopping

    def _begin_stop(self, name: str) -> None:
        known = self.record.of(name)
        if not known.stopping:
            known.stopping = True
            self._around.event(self.pod, "Normal", "Killing", f"Stopping container {name}")
            self._spawn(self._stop(name))

    async def _stop(self, name: str) -> None:
        """preStop, SIGTERM, and after the grace period SIGKILL to all that is left."""
        process = self._processes.get(name)
        if process is None:
            return
        grace = self._grace_s
        if grace is None:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        clock = self._around.clock
        ends = clock.now() + grace
        hook = ((self._container(name).get("lifecycle") or {}).get("preStop") or {}).get("exec")
        if hook:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(max(0.1, grace)):
                    line, variables = self.inside(name, hook["command"])
                    child = await asyncio.create_subprocess_exec(*line, env=variables)
                    await child.wait()
        await self._entered(name)
        processes.terminate(process)
        while process.is_alive and clock.now() < ends:
            remaining = min(ends, clock.now() + 0.5) - clock.now()
            await clock.sleep(max(0.02, min(remaining, 0.05 if grace < 2 else 0.2)))
            if self._grace_s is not None:
                ends = min(ends, clock.now() + self._grace_s)
        processes.kill(process)
        inner = sandbox.innermost(process.pid)
        if inner is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(inner, 9)
        if name in self._groups:
            self._groups[name].kill()


def _limits(container: Object) -> Limits:
    limits = pod_limits({"containers": [container]})
    memory, cpu = limits.get("memory"), limits.get("cpu")
    return Limits(
        memory_bytes=memory.value() if memory is not None else None,
        cpu_milli=cpu.milli_value() if cpu is not None else None,
        processes=_process_limit(container),
    )


def _process_limit(container: Object) -> int:
    given = ((container.get("resources") or {}).get("limits") or {}).get("hekla.io/processes")
    return parse_quantity(given).value() if given is not None else MAX_PROCESSES
