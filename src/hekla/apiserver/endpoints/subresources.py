"""Subresources: status, scale, binding, eviction, finalize, token and log.

Each is a function from a request to a response, listed in the table at the end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec

from hekla.api import wellknown
from hekla.apiserver import errors
from hekla.apiserver.auth.tokens import TokenIssuer
from hekla.apiserver.endpoints import bodies
from hekla.apiserver.endpoints.handlers import Handlers, read_delete_options
from hekla.apiserver.endpoints.messages import Request, Response
from hekla.apiserver.endpoints.nodeproxy import LogRequest, Nodes
from hekla.apiserver.endpoints.patching import patch_change
from hekla.apiserver.registry import disruption
from hekla.apiserver.registry.options import DeleteOptions
from hekla.apiserver.registry.resources import Change
from hekla.apiserver.registry.server_metadata import check_delete_preconditions
from hekla.apiserver.request_info import Query
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object

SUCCESS = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
decode = msgspec.json.decode


class Subresources:
    """Handles requests for subresources."""

    def __init__(self, handlers: Handlers, issuer: TokenIssuer, nodes: Nodes) -> None:
        self.handlers = handlers
        self.resources = handlers.resources
        self.issuer = issuer
        self.nodes = nodes

    async def handle(self, served: Served, request: Request) -> Response:
        name = request.target.subresource
        handler = _TABLE.get(name)
        offered = served.kind.subresources
        if handler is None or name not in offered:
            kind = served.kind
            if served.custom:
                raise errors.not_found(kind.group, kind.plural, request.target.name)
            raise errors.no_such_path()
        return await handler(self, served, request)

    def _body(self, request: Request) -> Object:
        obj = bodies.read(request.body, request.content_type, request.options())
        if not isinstance(obj, dict):
            raise errors.bad_request("the body must be a JSON object")
        return obj

    async def status(self, served: Served, request: Request) -> Response:
        match request.target.verb:
            case "get":
                return await self.handlers.get(served, request)
            case "update":
                return await self.handlers.update(served, request)
            case "patch":
                return await self.handlers.patch(served, request)
        raise errors.method_not_allowed()

    # Scale

    async def scale(self, served: Served, request: Request) -> Response:
        target = request.target
        if target.verb == "get":
            scale = await self._current_scale(served, request)
            if request.accept.shape == "Table":
                include = request.query.get("includeObject", "Metadata")
                scale = self.handlers.tables.scale(scale, include)
            return Response.of(scale)
        options = request.options()
        options.subresource, options.is_reviewed = "", True
        change_scale: Change
        if target.verb == "update":
            body = self._body(request)
            change_scale = lambda _: body  # noqa: E731 - a patch yields such a function, too
        elif target.verb == "patch":
            change_scale, _ = patch_change(served, request, options, self.resources.now())
        else:
            raise errors.method_not_allowed()
        admission = self.resources.admission
        if admission.covers("UPDATE", served, "scale"):
            old = await self._current_scale(served, request)
            new = change_scale(await self._current_scale(served, request))
            reviewed = await admission.review_subresource(
                "UPDATE", served, target.name, target.namespace, "scale", new, options, old
            )
            change_scale = lambda _: reviewed  # noqa: E731

        def change(obj: Object) -> Object:
            _apply_scale(served, obj, change_scale(_scale_of(served, obj)), target.name)
            return obj

        written = await self.resources.update(
            served, target.namespace, target.name, change, options
        )
        return Response.of(_scale_of(served, written.obj))

    async def _current_scale(self, served: Served, request: Request) -> Object:
        entry = self.resources.find(served, request.target.namespace, request.target.name)
        return _scale_of(served, await self.resources.in_version(served, decode(entry.body)))

    # Pods

    async def binding(self, served: Served, request: Request) -> Response:
        """Bind an unassigned pod to a node by compare-and-set, at most once."""
        if request.target.verb != "create":
            raise errors.method_not_allowed()
        binding = self._body(request)
        await self.bind(served, request, binding)
        return Response.of(SUCCESS, 201)

    async def bind(self, served: Served, request: Request, binding: Object) -> None:
        target = request.target
        options = request.options()
        options.subresource, options.is_reviewed = "binding", True
        binding = await self.resources.admission.review_subresource(
            "CREATE", served, target.name, target.namespace, "binding", binding, options
        )
        node = (binding.get("target") or {}).get("name")
        if not node:
            raise errors.bad_request("a binding needs target.name, the name of a node")
        if (binding["target"].get("kind") or "Node") != "Node":
            raise errors.bad_request("a pod can only be bound to a Node")
        metadata = binding.get("metadata") or {}
        now = self.resources.now()

        def assign(pod: Object) -> Object:
            _check_bindable(served, pod, node, metadata.get("uid"))
            pod["spec"]["nodeName"] = node
            for name in ("annotations", "labels"):
                if metadata.get(name):
                    pod["metadata"].setdefault(name, {}).update(metadata[name])
            scheduled = {
                "type": wellknown.PodCondition.SCHEDULED,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
            _set_condition(pod, scheduled)
            return pod

        await self.resources.update(served, target.namespace, target.name, assign, options)

    async def eviction(self, served: Served, request: Request) -> Response:
        """Evict a pod unless a disruption budget forbids it."""
        if request.target.verb != "create":
            raise errors.method_not_allowed()
        target = request.target
        eviction = self._body(request)
        options = request.options()
        options.is_reviewed = True
        eviction = await self.resources.admission.review_subresource(
            "CREATE", served, target.name, target.namespace, "eviction", eviction, options
        )
        inner = Request(request.target, request.query, request.accept, request.user)
        inner.body = msgspec.json.encode(eviction.get("deleteOptions") or {})
        delete_options: DeleteOptions = read_delete_options(inner)
        options.dry_run = request.query.is_dry_run
        disruption.check(self.resources, target.namespace, target.name)
        await self._mark_disrupted(served, request, delete_options)
        await self.resources.delete(served, target.namespace, target.name, options, delete_options)
        return Response.of(SUCCESS, 201)

    async def _mark_disrupted(
        self, served: Served, request: Request, delete_options: DeleteOptions
    ) -> None:
        """Set the pod's DisruptionTarget condition."""
        target, options = request.target, request.options()
        options.subresource, options.is_reviewed = "status", True
        condition = {
            "type": wellknown.PodCondition.DISRUPTION_TARGET,
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": self.resources.now(),
        }

        def mark(pod: Object) -> Object:
            check_delete_preconditions(served, pod, delete_options)
            _set_condition(pod, condition)
            return pod

        if not request.query.is_dry_run:
            written = await self.resources.update(
                served, target.namespace, target.name, mark, options
            )
            if delete_options.revision:  # set by this function
                delete_options.revision = written.obj["metadata"]["resourceVersion"]

    async def log(self, served: Served, request: Request) -> Response:
        if request.target.verb != "get":
            raise errors.method_not_allowed()
        target, query = request.target, request.query
        if (lines := self._kept_log(request)) is not None:
            return Response(200, lines, "text/plain")
        pod = decode(self.resources.find(served, target.namespace, target.name).body)
        container = query.get("container") or only_container(pod)
        node = pod["spec"].get("nodeName")
        if not node:
            raise errors.bad_request(
                f'container "{container}" in pod "{target.name}" is waiting to start: the pod '
                "has no node yet"
            )
        agent = self.nodes.agent_of(node)
        if agent is None:
            raise errors.unavailable(
                f"no node agent for node {node!r} is connected: logs of pod {target.name!r} "
                "cannot be read"
            )
        return Response(200, agent.logs(pod, _log_request(query, container)), "text/plain")

    def _kept_log(self, request: Request) -> AsyncIterator[bytes] | None:
        """Return the log of a deleted pod, if the request names one by its uid or its controller.

        Note: `uid` and `owner` are extensions of hekla. A pod that took the place of a deleted one
        has the same name. With `owner`, the uid of a controller, `run` counts the runs of all
        deleted pods of that name and controller.
        """
        target, query = request.target, request.query
        uid, container = query.get("uid"), query.get("container")
        metadata = {"namespace": target.namespace, "name": target.name}
        if owner := query.get("owner"):
            return self._found_kept_log({**metadata, "owner": owner}, query, container or "")
        if not uid or not container:
            return None
        entry = self.resources.store.get("pods", f"{target.namespace}/{target.name}")
        if entry is not None and decode(entry.body)["metadata"]["uid"] == uid:
            return None
        return self._found_kept_log({**metadata, "uid": uid}, query, container)

    def _found_kept_log(
        self, metadata: Object, query: Query, container: str
    ) -> AsyncIterator[bytes]:
        kept = self.nodes.kept_log(metadata, _log_request(query, container))
        if kept is None:
            raise errors.not_found("", "pods", metadata["name"])
        return kept

    # Others

    async def finalize(self, served: Served, request: Request) -> Response:
        if request.target.verb != "update":
            raise errors.method_not_allowed()
        return await self.handlers.update(served, request)

    async def token(self, served: Served, request: Request) -> Response:
        """Return a signed, expiring token of a service account."""
        if request.target.verb != "create":
            raise errors.method_not_allowed()
        target = request.target
        account = decode(self.resources.find(served, target.namespace, target.name).body)
        requested = await self.resources.admission.review_subresource(
            "CREATE",
            served,
            target.name,
            target.namespace,
            "token",
            self._body(request),
            request.options(),
        )
        return Response.of(self.issuer.answer(account, requested, self.resources), 201)


def _log_request(query: Query, container: str) -> LogRequest:
    return LogRequest(
        container=container,
        follow=query.flag("follow"),
        previous=query.flag("previous"),
        timestamps=query.flag("timestamps"),
        tail_lines=query.number("tailLines"),
        since_s=query.number("sinceSeconds"),
        since_time=query.get("sinceTime"),
        limit_bytes=query.number("limitBytes"),
        run=query.number("run"),
    )


def _check_bindable(served: Served, pod: Object, node: str, uid: str | None) -> None:
    name = pod["metadata"]["name"]
    why = ""
    if uid and uid != pod["metadata"]["uid"]:
        why = f"the pod's UID is {pod['metadata']['uid']}, not {uid}: it was recreated"
    elif "deletionTimestamp" in pod["metadata"]:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        why = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise errors.conflict("", "pods/binding", name, why)


def _set_condition(pod: Object, condition: Object) -> None:
    """Return the conditions with this one replacing another of its type."""
    conditions = pod["status"].setdefault("conditions", [])
    conditions[:] = [c for c in conditions if c.get("type") != condition["type"]]
    conditions.append(condition)


def only_container(pod: Object) -> str:
    """Return the container of a request that names none."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    if len(names) == 1:
        return str(names[0])
    wanted = (pod["metadata"].get("annotations") or {}).get(wellknown.DEFAULT_CONTAINER)
    if wanted in names:
        return str(wanted)
    raise errors.bad_request(
        f"a container name must be specified for pod {pod['metadata']['name']}, "
        f"choose one of: [{' '.join(names)}]"
    )


def _get(obj: Object, path: str) -> Any:
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _put(obj: Object, path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        obj = obj.setdefault(part, {})
    obj[last] = value


def _apply_scale(served: Served, obj: Object, scale: Object, name: str) -> None:
    """Set the replicas of an object to those of a Scale, with its resourceVersion."""
    for part in ("metadata", "spec"):
        if not isinstance(scale.get(part) or {}, dict):
            raise errors.bad_request(f"{part} of a Scale must be an object")
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        cause = {
            "reason": "FieldValueInvalid",
            "message": f"Invalid value: {replicas!r}: must be greater than or equal to 0",
            "field": "spec.replicas",
        }
        raise errors.invalid("autoscaling", "Scale", name, [cause])
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    assert served.scale is not None
    _put(obj, served.scale.spec_replicas, replicas)


def _scale_of(served: Served, obj: Object) -> Object:
    assert served.scale is not None
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": _get(obj, served.scale.status_replicas) or 0}
    selector = _get(obj, served.scale.selector) if served.scale.selector else None
    if selector is None and not served.custom:
        labels = (_get(obj, "spec.selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": _get(obj, served.scale.spec_replicas) or 0},
        "status": status,
    }


_Handler = Callable[[Subresources, Served, Request], Awaitable[Response]]
_TABLE: dict[str, _Handler] = {
    "status": Subresources.status,
    "approval": Subresources.status,
    "scale": Subresources.scale,
    "binding": Subresources.binding,
    "eviction": Subresources.eviction,
    "finalize": Subresources.finalize,
    "token": Subresources.token,
    "log": Subresources.log,
}
