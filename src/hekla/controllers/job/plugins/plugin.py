"""The base class of job plugins: a plugin changes pods before creation and requests objects.

    class Greeting(JobPlugin, name="greeting"):
        # sets an environment variable

        text: str = "hello"                      # argument --text

        def on_pod(self, pod, context):
            set_env(containers(pod), {"GREETING": self.text})

Defining the class registers it; annotated attributes are its arguments. A package provides plugins
by the entry point group `hekla.job_plugins`, which names the module or the class.

Note: `objects` is called repeatedly and must return the same objects for the same job. Content that
may be generated only once (keys) belongs into `ManagedObject.make_once`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, get_type_hints

from hekla.api import wellknown
from hekla.api.volcano import plugins
from hekla.controllers.job.plugins.flags import FlagError, parse_flags
from hekla.controllers.objects import owner_reference
from hekla.kube.resources import Resource
from hekla.units.objects import Object

log = logging.getLogger("hekla.controllers")

ENTRY_POINTS: Final = plugins.GROUP


@dataclass(frozen=True, slots=True)
class PodContext:
    """The job, task and index of a pod."""

    job: Object
    task: Object
    index: int


@dataclass(frozen=True, slots=True)
class ManagedObject:
    """An object that a plugin requests for the job."""

    resource: Resource[Object]
    body: Object
    """The wanted fields; other fields of the stored object stay."""
    make_once: Callable[[], Object] | None = None
    """Called in a thread when the object is created; the result is merged into the body."""


class JobPlugin:
    """The base class of job plugins; see the module docstring."""

    name: ClassVar[str] = ""
    is_tracked: ClassVar[bool] = True
    """Whether status.controlledResources lists it."""
    order: ClassVar[int] = 0
    """Plugins run by ascending order, then by name."""
    flag_names: ClassVar[Mapping[str, str]] = {}
    """Flags that are not the attribute name with dashes: attribute to flag."""

    def __init_subclass__(cls, name: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if name:
            cls.name = name
            register(cls)

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.problem = ""
        """The error in the arguments; as with Go's flags, the arguments after it are ignored."""
        kinds = {
            self.flag_names.get(attribute, attribute.replace("_", "-")): (attribute, kind)
            for attribute, kind in get_type_hints(type(self)).items()
            if kind in (str, int, bool) and attribute not in JobPlugin.__annotations__
        }
        try:
            for attribute, value in parse_flags(kinds, arguments):
                setattr(self, attribute, value)
        except FlagError as error:
            self.problem = f"plugin {self.name}: {error}"

    def on_pod(self, pod: Object, context: PodContext) -> None:
        """Change a pod before its creation, in place."""

    def objects(self, job: Object) -> list[ManagedObject]:
        """Return the objects that this job needs."""
        return []


_registry: dict[str, type[JobPlugin]] = {}
_is_loaded = False


def register(plugin: type[JobPlugin]) -> None:
    """Register a plugin under its name; a later plugin of the same name replaces it."""
    _registry[plugin.name] = plugin


def known_plugins() -> Mapping[str, type[JobPlugin]]:
    """Return all plugins: built-in ones and those of installed packages."""
    global _is_loaded
    if not _is_loaded:
        _is_loaded = True
        for point in entry_points(group=ENTRY_POINTS):
            try:
                point.load()
            except Exception:  # third-party code: log and continue without it
                log.exception("job plugin %s cannot be loaded and is skipped", point.name)
    return _registry


def plugins_of(job: Object) -> list[JobPlugin]:
    """Return a job's plugins in a fixed order; Volcano's is random."""
    requested: Mapping[str, Sequence[str] | None] = job["spec"].get("plugins") or {}
    known = known_plugins()
    found = [known[name](requested[name] or ()) for name in requested if name in known]
    return sorted(found, key=lambda plugin: (plugin.order, plugin.name))


def object_meta(job: Object, name: str) -> Object:
    """Return the metadata of an object that the job owns."""
    return {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owner_reference(wellknown.BATCH_API, "Job", job)],
    }


def containers(pod: Object, *, init: bool = False) -> list[Object]:
    """Return a pod's main containers, with `init` also the init containers."""
    spec = pod["spec"]
    found: list[Object] = list(spec.get("containers") or ())
    return found + list(spec.get("initContainers") or ()) if init else found


def set_env(among: Iterable[Object], values: Mapping[str, str | Object]) -> None:
    """Set variables to a text or a value source; they override those of the job's author."""
    for container in among:
        kept = [item for item in container.get("env") or () if item["name"] not in values]
        container["env"] = kept + [
            {"name": name, "value": value}
            if isinstance(value, str)
            else {"name": name, "valueFrom": value}
            for name, value in values.items()
        ]


def add_port(container: Object, name: str, port: int) -> None:
    """Declare a port under a name, unless the container has one of that name."""
    ports = container.setdefault("ports", [])
    if all(existing.get("name") != name for existing in ports):
        ports.append({"name": name, "containerPort": port})


def mount(pod: Object, volume: Object, mounts: Object) -> None:
    """Add a volume and mount it in every container, init containers included."""
    volumes = pod["spec"].setdefault("volumes", [])
    if any(existing.get("name") == volume["name"] for existing in volumes):
        return
    volumes.append(volume)
    for container in containers(pod, init=True):
        container.setdefault("volumeMounts", []).append({"name": volume["name"], **mounts})


def task_named(job: Object, name: str) -> Object | None:
    """Return a task of a job by its name."""
    for task in job["spec"].get("tasks") or ():
        if task.get("name") == name:
            found: Object = task
            return found
    return None


def replicas_of(job: Object, name: str) -> int:
    """Return the replicas of a task; 0 for a missing one."""
    task = task_named(job, name)
    return 0 if task is None else int(task.get("replicas") or 0)
