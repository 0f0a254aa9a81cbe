"""Admission of Queues: defaults, resource shares, and the tree.

Differences from Volcano: a Closing queue can still be edited, every cycle of parents is found, not
only those beyond the depth limit, and a queue with unfinished jobs cannot be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from hekla.api import wellknown
from hekla.api.rules.amounts import resource_list
from hekla.api.rules.fields import FieldErrors, forbidden, invalid
from hekla.api.volcano.view import View, children_of, parent_of
from hekla.units.objects import Object
from hekla.units.quantity import Quantity, QuantityError, parse_quantity

MAX_DEPTH: Final = 5
NAMED: Final = 3
"""How many jobs the refusal to delete a queue names."""
Amounts = dict[str, Quantity]
_ZERO: Final = Quantity.from_int(0)
BUILTIN_QUEUES: Final = (wellknown.ROOT_QUEUE, wellknown.DEFAULT_QUEUE)


def builtin_queue(name: str) -> Object:
    """Return one of the `BUILTIN_QUEUES` to create; `root` is not reclaimable."""
    spec = {"weight": 1, "reclaimable": name != wellknown.ROOT_QUEUE}
    return {"metadata": {"name": name}, "spec": spec}


def default(queue: Object) -> None:
    """Apply the defaults of a new queue."""
    spec = queue.setdefault("spec", {})
    if spec.get("reclaimable") is None:
        spec["reclaimable"] = True
    if not spec.get("weight"):
        spec["weight"] = 1
    annotations = queue["metadata"].get("annotations") or {}
    path, weights = (
        annotations.get(wellknown.HIERARCHY),
        annotations.get(wellknown.HIERARCHY_WEIGHTS),
    )
    root = wellknown.ROOT_QUEUE
    if path and weights and path != root and not path.startswith(f"{root}/"):
        annotations[wellknown.HIERARCHY] = f"{root}/{path}"
        annotations[wellknown.HIERARCHY_WEIGHTS] = f"1/{weights}"


def _share(queue: Object, field: str) -> Amounts:
    spec = queue.get("spec") or {}
    amounts = (
        (spec.get("guarantee") or {}).get("resource") if field == "guarantee" else spec.get(field)
    )
    return {name: parse_quantity(text) for name, text in (amounts or {}).items()}


def check(queue: Object, old: Object | None, view: View) -> FieldErrors:
    """Yield all errors of a queue to be created, or to replace `old`."""
    spec = queue.get("spec") or {}
    malformed = [
        *resource_list("spec.capability", spec.get("capability")),
        *resource_list("spec.deserved", spec.get("deserved")),
        *resource_list("spec.guarantee.resource", (spec.get("guarantee") or {}).get("resource")),
    ]
    yield from malformed
    if malformed:
        return
    yield from _own_shares(queue)
    yield from _hierarchy(queue, view)
    name = queue["metadata"]["name"]
    if name == wellknown.ROOT_QUEUE:
        yield from _root(queue, old)
        return
    moved = old is None or parent_of(queue) != parent_of(old)
    if moved:
        in_place = list(_parent(queue, view))
        yield from in_place
        if in_place:
            return
    if moved or _resources(queue) != _resources(old or {}):
        yield from _check_ancestors(queue, view)
        yield from _check_children(queue, view)


def check_delete(queue: Object, view: View) -> FieldErrors:
    """Yield the reasons why a queue may not be deleted."""
    name = queue["metadata"]["name"]
    if name in BUILTIN_QUEUES:
        yield forbidden("metadata.name", f"`{name}` queue can not be deleted: it is built in")
    elif children := children_of(name, view):
        listed = ", ".join(sorted(child["metadata"]["name"] for child in children))
        yield forbidden(
            "metadata.name",
            f"queue {name} can not be deleted because it has {len(children)} child queues: "
            f"{listed}; delete or move them first",
        )
    elif unfinished := unfinished_workloads(name, view):
        yield forbidden(
            "metadata.name",
            f"queue {name} can not be deleted because it has {describe_workloads(unfinished)}; "
            f"close it with `vcctl queue operate -n {name} -a close` and delete it when they have "
            f"ended, or delete them too with `vcctl queue delete -n {name} --force`",
        )


def unfinished_workloads(name: str, view: View) -> list[Object]:
    """Return the jobs that the deletion of a queue would leave without one.

    These are Jobs, and PodGroups that no Job owns. What is being deleted does not count, nor what
    is in a namespace that is: Volcano's own tests delete a namespace and at once its queues.
    """
    ending: dict[str, bool] = {}

    def is_ending(namespace: str) -> bool:
        if namespace not in ending:
            found = view.namespace(namespace) or {}
            ending[namespace] = _is_deleting(found)
        return ending[namespace]

    return [
        each
        for each in view.workloads(name)
        if _is_unfinished(each) and not is_ending(each["metadata"].get("namespace") or "")
    ]


def _is_deleting(obj: Object) -> bool:
    return bool((obj.get("metadata") or {}).get("deletionTimestamp"))


def _is_unfinished(workload: Object) -> bool:
    if _is_deleting(workload):
        return False
    if workload.get("kind") == "Job":
        return job_phase(workload) not in wellknown.JobPhase.FINISHED
    owners = workload["metadata"].get("ownerReferences") or ()
    if any((o.get("apiVersion"), o.get("kind")) == (wellknown.BATCH_API, "Job") for o in owners):
        return False  # the Job itself is counted
    return group_phase(workload) != wellknown.PodGroupPhase.COMPLETED


def job_phase(job: Object) -> str:
    state = (job.get("status") or {}).get("state") or {}
    return str(state.get("phase") or wellknown.JobPhase.PENDING)


def group_phase(group: Object) -> str:
    return str((group.get("status") or {}).get("phase") or wellknown.PodGroupPhase.PENDING)


def describe_workloads(workloads: list[Object]) -> str:
    """Describe jobs in a phrase: `3 unfinished jobs (1 pending, 2 running): a/x, a/y, b/z`."""
    phases = Counter(
        (job_phase(each) if each.get("kind") == "Job" else group_phase(each)).lower()
        for each in workloads
    )
    counted = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items()))
    names = sorted(f"{w['metadata'].get('namespace')}/{w['metadata']['name']}" for w in workloads)
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    noun = "job" if len(names) == 1 else "jobs"
    return f"{len(names)} unfinished {noun} ({counted}): {', '.join(names[:NAMED])}{more}"


def _resources(queue: Object) -> tuple[Amounts, ...]:
    return tuple(_share(queue, field) for field in ("capability", "deserved", "guarantee"))


def _own_shares(queue: Object) -> FieldErrors:
    capability, deserved, guarantee = _resources(queue)
    if deserved:
        for name, amount in guarantee.items():
            if deserved.get(name, _ZERO) < amount:
                yield invalid(
                    f"spec.deserved[{name}]",
                    str(deserved.get(name, _ZERO)),
                    "guarantee should less equal than deserved: it must be at least the guarantee "
                    f"of {amount}",
                )
    for name, amount in deserved.items():
        if name in capability and amount > capability[name]:
            yield invalid(
                f"spec.deserved[{name}]",
                str(amount),
                "deserved should less equal than capability: it must not exceed the capability of "
                f"{capability[name]}",
            )
    for name, amount in guarantee.items():
        if name in capability and amount > capability[name]:
            yield invalid(
                f"spec.guarantee.resource[{name}]",
                str(amount),
                "guarantee should less equal than capability: it must not exceed the capability of "
                f"{capability[name]}",
            )


def _hierarchy(queue: Object, view: View) -> FieldErrors:
    """Check the annotations of hierarchical DRF."""
    annotations = queue["metadata"].get("annotations") or {}
    path = annotations.get(wellknown.HIERARCHY, "")
    weights = annotations.get(wellknown.HIERARCHY_WEIGHTS, "")
    if not path and not weights:
        return
    where = f"metadata.annotations[{wellknown.HIERARCHY_WEIGHTS}]"
    if path.count("/") != weights.count("/"):
        yield invalid(
            where,
            weights,
            f"{wellknown.HIERARCHY} must have the same length with {wellknown.HIERARCHY_WEIGHTS}: "
            f"as many parts as the hierarchy {path!r}",
        )
        return
    for part in weights.split("/"):
        try:
            positive = float(part) > 0
        except ValueError:
            positive = False
        if not positive:
            yield invalid(where, part, "every weight must be a number above 0")
    name = queue["metadata"]["name"]
    for other in view.queues():
        theirs = (other["metadata"].get("annotations") or {}).get(wellknown.HIERARCHY, "")
        if other["metadata"]["name"] != name and theirs.startswith(f"{path}/"):
            yield invalid(
                f"metadata.annotations[{wellknown.HIERARCHY}]",
                path,
                f"queue {other['metadata']['name']!r} lies below it, so this one is not a leaf",
            )


def _root(queue: Object, old: Object | None) -> FieldErrors:
    if old is not None and _resources(queue) != _resources(old):
        yield forbidden("spec", "capability, deserved and guarantee of root are the cluster's own")


def _ancestors(queue: Object, view: View) -> Iterator[Object]:
    """Yield the ancestors without root; a cycle ends where it closes."""
    seen = {queue["metadata"]["name"]}
    while True:
        above = parent_of(queue)
        if above in ("", wellknown.ROOT_QUEUE) or above in seen:
            return
        seen.add(above)
        parent = view.queue(above)
        if parent is None:
            return
        yield parent
        queue = parent


def _parent(queue: Object, view: View) -> FieldErrors:
    name, above = queue["metadata"]["name"], parent_of(queue)
    if above in ("", wellknown.ROOT_QUEUE):
        return
    if above == name:
        yield invalid(
            "spec.parent",
            above,
            f"queue {name} cannot use itself as parent: a queue cannot be its own parent",
        )
        return
    parent = view.queue(above)
    if parent is None:
        yield invalid("spec.parent", above, "no such queue; create it first")
        return
    line = list(_ancestors(queue, view))
    if any(parent_of(one) == name for one in line):
        path = " -> ".join([name, *(one["metadata"]["name"] for one in line), name])
        yield invalid("spec.parent", above, f"the parents would form a cycle: {path}")
        return
    if len(line) + 1 > MAX_DEPTH:
        yield invalid("spec.parent", above, f"queues may be nested {MAX_DEPTH} deep at most")
    if not children_of(above, view) and _holds_pods(parent):
        yield forbidden(
            "spec.parent",
            f"queue {above!r} runs pods itself; only a queue without any can become a parent",
        )


def _holds_pods(queue: Object) -> bool:
    allocated = (queue.get("status") or {}).get("allocated") or {}
    try:
        return parse_quantity(allocated.get("pods", 0)) > _ZERO
    except QuantityError:
        return False


def _check_ancestors(queue: Object, view: View) -> FieldErrors:
    """Check against the limits of the ancestors."""
    capability = _share(queue, "capability")
    for name, amount in capability.items():
        for ancestor in _ancestors(queue, view):
            limits = _share(ancestor, "capability")
            if name in limits:
                if amount > limits[name]:
                    yield invalid(
                        f"spec.capability[{name}]",
                        str(amount),
                        f"exceeds {limits[name]} of queue {ancestor['metadata']['name']!r} above",
                    )
                break
    above = parent_of(queue)
    parent = view.queue(above) if above not in ("", wellknown.ROOT_QUEUE) else None
    if parent is not None:
        name = queue["metadata"]["name"]
        siblings = [q for q in children_of(above, view) if q["metadata"]["name"] != name]
        for field in ("guarantee", "deserved"):
            yield from _sum_within(field, [queue, *siblings], parent)


def _check_children(queue: Object, view: View) -> FieldErrors:
    """Check against the amounts of the children."""
    children = children_of(queue["metadata"]["name"], view)
    if not children:
        return
    capability = _share(queue, "capability")
    for name, amount in capability.items():
        for descendant in _descendants(queue, view):
            limit = _share(descendant, "capability").get(name)
            if limit is not None and limit > amount:
                yield invalid(
                    f"spec.capability[{name}]",
                    str(amount),
                    f"queue {descendant['metadata']['name']!r} below has {limit}",
                )
    for field in ("guarantee", "deserved"):
        yield from _sum_within(field, children, queue)


def _descendants(queue: Object, view: View) -> Iterator[Object]:
    waiting, seen = [queue["metadata"]["name"]], {queue["metadata"]["name"]}
    while waiting:
        for child in children_of(waiting.pop(), view):
            if child["metadata"]["name"] not in seen:
                seen.add(child["metadata"]["name"])
                waiting.append(child["metadata"]["name"])
                yield child


def _sum_within(field: str, queues: list[Object], parent: Object) -> FieldErrors:
    limit = _share(parent, field)
    total: Amounts = {}
    for queue in queues:
        for name, amount in _share(queue, field).items():
            total[name] = total[name] + amount if name in total else amount
    for name, amount in total.items():
        if amount > limit.get(name, _ZERO):
            yield invalid(
                f"spec.{field}[{name}]",
                str(amount),
                f"the queues below {parent['metadata']['name']!r} add up to {amount}, and it has "
                f"{limit.get(name, _ZERO)}",
            )
