"""What a job plugin is: a class that changes pods on their way out and asks for objects.

    class Greeting(JobPlugin, name="greeting"):
        # says hello in an environment variable

        text: str = "hello"                      # argument --text

        def on_pod(self, pod, place):
            set_env(containers(pod), {"GREETING": self.text})

Defining the class registers it; annotated attributes are its arguments. A package brings plugins
along by the entry point group `hekla.job_plugins`, naming the module or the class.

What a newcomer gets wrong: `objects` is asked again and again and must give the same answer for the
same job. What may be made only once (keys) goes into `Managed.make_once`.
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
class Place:
    """Where a pod stands: its job, its task and its index."""

    job: Object
    task: Object
    index: int


@dataclass(frozen=True, slots=True)
class Managed:
    """An object that a plugin wants beside the job."""

    resource: Resource[Object]
    body: Object
    """What it shall hold; other fields of the stored object are left alone."""
    make_once: Callable[[], Object] | None = None
    """Run in a thread when the object is created: its answer is merged into the body."""


class JobPlugin:
    """Base of all job plugins; see the module's text."""

    name: ClassVar[str] = ""
    is_tracked: ClassVar[bool] = True
    """Whether status.controlledResources lists it."""
    order: ClassVar[int] = 0
    """Plugins of a higher order come later; those of one order by name."""
    flag_names: ClassVar[Mapping[str, str]] = {}
    """Flags whose name is not the attribute's with dashes: attribute to flag."""

    def __init_subclass__(cls, name: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if name:
            cls.name = name
            register(cls)

    def __init__(self, arguments: Sequence[str] = ()) -> None:
        self.problem = ""
        """What is wrong with the arguments; as with Go's flags, those after it are ignored."""
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

    def on_pod(self, pod: Object, place: Place) -> None:
        """Change a pod that is about to be created; the body is yours."""

    def objects(self, job: Object) -> list[Managed]:
        """The objects this job needs."""
        return []


_registry: dict[str, type[JobPlugin]] = {}
_is_loaded = False


def register(plugin: type[JobPlugin]) -> None:
    """Make a plugin known under its name; a later one of the same name replaces it."""
    _registry[plugin.name] = plugin


def known_plugins() -> Mapping[str, type[JobPlugin]]:
    """All plugins: our own and those that installed packages bring along."""
    global _is_loaded
    if not _is_loaded:
        _is_loaded = True
        for point in entry_points(group=ENTRY_POINTS):
            try:
                point.load()
            except Exception:  # somebody else's code: say it and go on without
                log.exception("job plugin %s cannot be loaded and is left out", point.name)
    return _registry


def plugins_of(job: Object) -> list[JobPlugin]:
    """A job's plugins, always in the same order: Volcano's is random."""
    asked: Mapping[str, Sequence[str] | None] = job["spec"].get("plugins") or {}
    known = known_plugins()
    found = [known[name](asked[name] or ()) for name in asked if name in known]
    return sorted(found, key=lambda plugin: (plugin.order, plugin.name))


def object_meta(job: Object, name: str) -> Object:
    """Metadata of an object that belongs to the job and goes with it."""
    return {
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owner_reference(wellknown.BATCH_API, "Job", job)],
    }


def containers(pod: Object, *, init: bool = False) -> list[Object]:
    """A pod's main containers; with `init` the init containers too."""
    spec = pod["spec"]
    found: list[Object] = list(spec.get("containers") or ())
    return found + list(spec.get("initContainers") or ()) if init else found


def set_env(among: Iterable[Object], values: Mapping[str, str | Object]) -> None:
    """Set variables, to a text or to where the value comes from; the job's author is overruled."""
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
    for task in job["spec"].get("tasks") or ():
        if task.get("name") == name:
            found: Object = task
            return found
    return None


def replicas_of(job: Object, name: str) -> int:
    task = task_named(job, name)
    return 0 if task is None else int(task.get("replicas") or 0)
