"""Admission of Volcano Jobs: defaults at creation, and validation.

Differences from Volcano: an explicit `maxRetry: 0` is kept; a requested device without a limit gets
one; a queue without a status counts as open; the longest pod name of a task is checked, not the
first; the action of an exit-code policy is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from hekla.api import wellknown
from hekla.api.defaults import pods as pod_defaults
from hekla.api.rules import names
from hekla.api.rules.amounts import is_extended
from hekla.api.rules.fields import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    too_many,
)
from hekla.api.rules.pods import pod_spec
from hekla.api.volcano import arrays
from hekla.api.volcano.policies import check_policies
from hekla.api.volcano.view import View, children_of, state_of
from hekla.api.wellknown import QueueState
from hekla.units.objects import Object
from hekla.units.quantity import QuantityError, parse_quantity

DEFAULT_RETRIES: Final = 3
# Dependencies of plugins: frameworks need svc, MPI needs ssh.
NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "tensorflow": ("svc",),
    "pytorch": ("svc",),
    "ray": ("svc",),
    "mpi": ("ssh", "svc"),
}
MAX_GENERATED_PREFIX: Final = 58
GENERATED_SUFFIX: Final = 5
"""The server shortens a `generateName` to the first, and appends so many letters and digits."""
MAX_TASKS: Final = 1_000
MAX_REPLICAS: Final = 100_000
"""Pods of one job, if the operator sets no other limit. Volcano has none: 2³¹-1 replicas are
admitted and stall its controllers.
"""
MAX_REPLICAS_LOCAL: Final = 10_000
"""The same on a single machine, where one process serves all users and holds all pods."""
MAX_LISTED_BYTES: Final = 1 << 20
"""The plugins svc and ssh list all hosts in one ConfigMap or Secret, which Kubernetes limits."""
MUTABLE: Final = "minAvailable, priorityClassName, and each task's replicas and minAvailable"


def default(job: Object, view: View) -> None:
    """Apply the defaults of a new job."""
    spec = job.setdefault("spec", {})
    spec["queue"] = spec.get("queue") or wellknown.DEFAULT_QUEUE
    spec["schedulerName"] = spec.get("schedulerName") or view.scheduler_names[0]
    if spec.get("maxRetry") is None:
        spec["maxRetry"] = DEFAULT_RETRIES
    arrays.default(job)
    for index, task in enumerate(spec.get("tasks") or ()):
        _default_task(task, index)
    if not spec.get("minAvailable"):
        spec["minAvailable"] = sum(task["minAvailable"] for task in spec.get("tasks") or ())
    plugins = spec.get("plugins")
    if plugins is not None:
        for name in list(plugins):
            for needed in NEEDS.get(name, ()):
                plugins.setdefault(needed, [])


def _default_task(task: Object, index: int) -> None:
    task["name"] = task.get("name") or f"{wellknown.DEFAULT_TASK}{index}"
    task.setdefault("replicas", 0)
    if task.get("minAvailable") is None:
        partition = task.get("partitionPolicy") or {}
        minimum = (partition.get("minPartitions") or 0) * (partition.get("partitionSize") or 0)
        task["minAvailable"] = minimum or task["replicas"]
    if task.get("maxRetry") is None:
        task["maxRetry"] = DEFAULT_RETRIES
    pod = (task.get("template") or {}).get("spec") or {}
    if pod.get("hostNetwork") and not pod.get("dnsPolicy"):
        pod["dnsPolicy"] = "ClusterFirstWithHostNet"
    for group in ("containers", "initContainers"):
        for container in pod.get(group) or ():
            _limit_devices(container)


def _limit_devices(container: Object) -> None:
    """Set the limit of a requested device: Kubernetes requires both."""
    resources = container.get("resources") or {}
    for name, amount in (resources.get("requests") or {}).items():
        if is_extended(name):
            resources.setdefault("limits", {}).setdefault(name, amount)


def check(job: Object, old: Object | None, view: View) -> FieldErrors:
    """Yield all errors of a job to be created, or to replace `old`."""
    if old is not None:
        yield from _check_update(job, old, view)
        return
    yield from check_spec(name_of(job["metadata"]), job["spec"], view)
    yield from arrays.check(job, name_of(job["metadata"]))
    yield from _queue(job["spec"], view)


def name_of(metadata: Object) -> str:
    """Return the name, or one like those that the server makes of `generateName`."""
    if metadata.get("name") or not metadata.get("generateName"):
        return metadata.get("name") or ""
    return str(metadata["generateName"])[:MAX_GENERATED_PREFIX] + "x" * GENERATED_SUFFIX


def check_spec(name: str, spec: Object, view: View, path: str = "spec") -> FieldErrors:
    """Check everything but the queue: also for the job in a cron job or a template."""
    tasks = spec.get("tasks") or []
    if not tasks:
        yield required(
            f"{path}.tasks", "No task specified in job spec: a job needs at least one task"
        )
        return
    if len(tasks) > MAX_TASKS:
        yield too_many(f"{path}.tasks", len(tasks), MAX_TASKS)
        return
    yield from _plugins(name, spec, view, path)
    yield from tier(f"{path}.networkTopology", spec.get("networkTopology"))
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        where = f"{path}.tasks[{index}]"
        if task.get("name") in seen:
            yield duplicate(
                f"{where}.name", task["name"], f"duplicated task name {task['name']}; rename one"
            )
        seen.add(task.get("name") or "")
        yield from _task(name, task, where)
    yield from check_policies(f"{path}.policies", spec.get("policies") or ())
    yield from _size(tasks, view, path)
    yield from _minimum(spec, tasks, path)
    yield from _listed_hosts(name, spec, path)
    yield from _volumes(f"{path}.volumes", spec.get("volumes") or ())
    yield from _dependencies(tasks, path)


def _task(job: str, task: Object, where: str) -> FieldErrors:
    replicas, minimum = task.get("replicas", 0), task.get("minAvailable")
    if minimum is not None and minimum > replicas:
        yield invalid(
            f"{where}.minAvailable",
            minimum,
            f"'minAvailable' is greater than 'replicas' in task: {task.get('name')}, job: {job}; "
            f"it exceeds the task's {replicas} replicas, lower it",
        )
    longest = f"{job}-{task.get('name')}-{max(replicas - 1, 0)}"
    if why := names.dns_label(longest):
        yield invalid(
            f"{where}.name",
            task.get("name"),
            f"its last pod would be called {longest!r}, which {why}",
        )
    yield from _partitions(task, where)
    yield from check_policies(f"{where}.policies", task.get("policies") or ())
    yield from _template(task, where)
    policy = task.get("topologyPolicy")
    if policy not in (None, "", "none"):
        yield from _whole_cpus(task, f"{where}.template.spec")


def _template(task: Object, where: str) -> FieldErrors:
    """Check the template as a pod with defaults, on a copy."""
    template = deepcopy(task.get("template") or {})
    spec = template.setdefault("spec", {})
    pod_defaults.pod_spec(spec)
    yield from pod_spec(f"{where}.template.spec", spec)
    metadata = template.get("metadata") or {}
    yield from names.label_map(f"{where}.template.metadata.labels", metadata.get("labels"))


def _whole_cpus(task: Object, where: str) -> FieldErrors:
    """Check that NUMA policies get whole CPUs."""
    spec = (task.get("template") or {}).get("spec") or {}
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            resources = container.get("resources") or {}
            amounts = resources.get("requests") or resources.get("limits") or {}
            requested = amounts.get("cpu", 0)
            try:
                milli = parse_quantity(requested).milli_value()
            except QuantityError:
                continue  # reported elsewhere
            if milli <= 0 or milli % 1000:
                yield invalid(
                    f"{where}.{group}[{index}].resources",
                    requested,
                    f"topologyPolicy {task['topologyPolicy']!r} needs a whole number of CPUs",
                )


def _partitions(task: Object, where: str) -> FieldErrors:
    partition = task.get("partitionPolicy")
    if not partition:
        return
    where = f"{where}.partitionPolicy"
    total, size = partition.get("totalPartitions", 0), partition.get("partitionSize", 0)
    for name, value in (("totalPartitions", total), ("partitionSize", size)):
        if value <= 0:
            yield invalid(f"{where}.{name}", value, "must be at least 1")
    replicas = task.get("replicas", 0)
    if total > 0 and size > 0 and replicas != total * size:
        yield invalid(
            f"{where}.totalPartitions",
            total,
            f"{total} partitions of {size} are {total * size} pods, and replicas is {replicas}",
        )
    partitions = partition.get("minPartitions") or 0
    if partitions > 0 and task.get("minAvailable") != partitions * size:
        yield invalid(
            f"{where}.minPartitions",
            partitions,
            f"{partitions} partitions of {size} are {partitions * size} pods, and the task's "
            f"minAvailable is {task.get('minAvailable')}",
        )
    yield from tier(f"{where}.networkTopology", partition.get("networkTopology"))


def tier(where: str, topology: Object | None) -> FieldErrors:
    """Check that a tier is given by number or by name."""
    if (
        topology
        and topology.get("highestTierAllowed") is not None
        and topology.get("highestTierName")
    ):
        yield forbidden(
            where, "highestTierAllowed and highestTierName are mutually exclusive; keep one of them"
        )


def _plugins(job: str, spec: Object, view: View, path: str) -> FieldErrors:
    plugins = spec.get("plugins") or {}
    for name in sorted(plugins):
        if name not in view.job_plugins:
            known = ", ".join(sorted(view.job_plugins))
            yield invalid(
                f"{path}.plugins",
                name,
                f"unable to find job plugin: {name}; unknown job plugin; known: {known}",
            )
    if "mpi" in plugins:
        master = _flag(plugins["mpi"] or (), "master", "master")
        if master not in [task.get("name") for task in spec.get("tasks") or ()]:
            yield invalid(
                f"{path}.plugins[mpi]", master, "the master's task is missing; name a task so, or "
                "give --master=TASK",
            )  # fmt: skip
    if "svc" in plugins and job and (why := names.dns_1035_label(job)):
        yield invalid("metadata.name", job, f"the svc plugin creates a Service of this name: {why}")


def _flag(arguments: Any, name: str, default_value: str) -> str:
    """Parse a Go-style flag: -f=v, --f=v or --f v."""
    for index, argument in enumerate(arguments):
        text = str(argument).lstrip("-")
        if text == name and index + 1 < len(arguments):
            return str(arguments[index + 1])
        if text.startswith(f"{name}="):
            return text.partition("=")[2]
    return default_value


def _size(tasks: list[Object], view: View, path: str, *, before: int = 0) -> FieldErrors:
    """Limit the pods of a job. One that is `before` larger than a lowered limit may shrink."""
    total, limit = _replicas(tasks), view.max_pods_per_job
    if total > max(limit, before):
        yield invalid(
            f"{path}.tasks",
            total,
            f"the tasks have more than {limit} replicas in all, the most pods that a job may have "
            "here; split the job, or ask the administrator to raise --max-pods-per-job",
        )


def _replicas(tasks: list[Object]) -> int:
    return sum(task.get("replicas", 0) for task in tasks)


def _minimum(spec: Object, tasks: list[Object], path: str) -> FieldErrors:
    total = _replicas(tasks)
    minimum = spec.get("minAvailable") or 0
    if minimum < 0:
        yield invalid(f"{path}.minAvailable", minimum, "must not be negative")
    if minimum > total:
        yield invalid(
            f"{path}.minAvailable",
            minimum,
            f"job 'minAvailable' should not be greater than total replicas in tasks: the job has "
            f"only {total} replicas in all; lower it",
        )


def _listed_hosts(job: str, spec: Object, path: str) -> FieldErrors:
    plugins = spec.get("plugins") or {}
    for plugin, times, extra in (("svc", 2, 2), ("ssh", 2, 40)):
        if plugin not in plugins:
            continue
        size = sum(
            task.get("replicas", 0)
            * (times * len(f"{job}-{task.get('name')}-{task.get('replicas', 0)}.{job}") + extra)
            for task in spec.get("tasks") or ()
        )
        if size > MAX_LISTED_BYTES:
            yield invalid(
                f"{path}.plugins",
                plugin,
                f"lists every host, about {size} bytes; an object holds {MAX_LISTED_BYTES}. "
                "Use fewer replicas or leave the plugin out",
            )


def _volumes(where: str, volumes: Any) -> FieldErrors:
    mounted: set[str] = set()
    for index, volume in enumerate(volumes):
        path, at = volume.get("mountPath"), f"{where}[{index}]"
        if not path:
            yield required(f"{at}.mountPath")
        elif path in mounted:
            yield duplicate(f"{at}.mountPath", path, f"duplicated mountPath: {path}; change one")
        mounted.add(path or "")
        claim, name = volume.get("volumeClaim"), volume.get("volumeClaimName")
        if claim and name:
            yield forbidden(at, "volumeClaim and volumeClaimName are mutually exclusive; keep one")
        elif not claim and not name:
            yield required(
                at,
                "either VolumeClaim or VolumeClaimName must be specified: either "
                "volumeClaim or volumeClaimName",
            )
        elif name and (why := names.dns_subdomain(name)):
            yield invalid(f"{at}.volumeClaimName", name, why)


def _dependencies(tasks: list[Object], path: str) -> FieldErrors:
    graph: dict[str, list[str]] = {}
    known = {task.get("name") for task in tasks}
    for index, task in enumerate(tasks):
        needs = list(dict.fromkeys((task.get("dependsOn") or {}).get("name") or ()))
        graph[task.get("name") or ""] = needs
        for needed in needs:
            if needed not in known:
                yield not_found(f"{path}.tasks[{index}].dependsOn.name", needed)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        yield invalid(f"{path}.tasks", " -> ".join(error.args[1]), "dependsOn has a cycle")


def _queue(spec: Object, view: View) -> FieldErrors:
    name = spec.get("queue") or wellknown.DEFAULT_QUEUE
    queue = view.queue(name)
    if queue is None:
        yield invalid(
            "spec.queue",
            name,
            f"unable to find job queue: queues {name!r} not found: no such queue; create it or "
            "choose another",
        )
        return
    if name == wellknown.ROOT_QUEUE:
        yield forbidden(
            "spec.queue",
            "can not submit job to root queue: jobs need a leaf queue, and root is not one",
        )
    elif children := children_of(name, view):
        listed = ", ".join(sorted(child["metadata"]["name"] for child in children))
        yield forbidden(
            "spec.queue",
            f"can only submit job to leaf queue, queue `{name}` has {len(children)} child queues: "
            f"{name!r} is not a leaf; choose one below it: {listed}",
        )
    # A queue is open until it is closed, also before its controller has set a state.
    elif state_of(queue) not in ("", QueueState.OPEN):
        state = state_of(queue)
        yield forbidden(
            "spec.queue",
            f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`: "
            f"queue {name!r} is {state}; open it or choose another",
        )


def _check_update(job: Object, old: Object, view: View) -> FieldErrors:
    spec, before = job["spec"], old["spec"]
    tasks, tasks_before = spec.get("tasks") or [], before.get("tasks") or []
    if len(tasks) != len(tasks_before):
        yield forbidden(
            "spec.tasks",
            "job updates may not add or remove tasks: tasks can be neither added nor removed; "
            "submit a new job",
        )
        return
    for index, task in enumerate(tasks):
        where = f"spec.tasks[{index}]"
        replicas, minimum = task.get("replicas", 0), task.get("minAvailable")
        if replicas < 0:
            yield invalid(f"{where}.replicas", replicas, "must not be negative")
        if minimum is not None and not 0 <= minimum <= replicas:
            yield invalid(
                f"{where}.minAvailable",
                minimum,
                f"'minAvailable' must be <= 'replicas' in task: {task.get('name')}; it must be "
                f"between 0 and replicas ({replicas})",
            )
        yield from _partitions(task, where)
    yield from arrays.check_update(job, old)
    yield from _size(tasks, view, "spec", before=_replicas(tasks_before))
    yield from _minimum(spec, tasks, "spec")
    yield from _listed_hosts(job["metadata"].get("name") or "", spec, "spec")
    yield from tier("spec.networkTopology", spec.get("networkTopology"))
    if _fixed(spec) != _fixed(before):
        changed = sorted(
            name for name in {*spec, *before} if _fixed(spec).get(name) != _fixed(before).get(name)
        )
        yield forbidden(
            "spec",
            "job updates may not change fields other than `minAvailable`, `tasks[*].replicas under "
            f"spec` and `PriorityClassName`: only {MUTABLE} can change; "
            f"changed: {', '.join(changed)}",
        )


def _fixed(spec: Object) -> Object:
    """Return a spec without its mutable fields."""
    fixed = deepcopy(spec)
    for name in ("minAvailable", "priorityClassName"):
        fixed.pop(name, None)
    for task in fixed.get("tasks") or ():
        for name in ("replicas", "minAvailable"):
            task.pop(name, None)
    for volume in fixed.get("volumes") or ():
        if volume.get("volumeClaim"):
            volume.pop("volumeClaimName", None)
    return fixed
