"""Draw the next request: random, valid and invalid, on a few names of a few kinds.

The body of a step may depend on earlier responses (the object, its version, a continue token), so
it is built once for each server from the responses of that server.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hekla.units.objects import Object
from tools.differential.samples import SAMPLES, Sample
from tools.differential.wire import Peer

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
NAMES = ("a", "b", "c")

Body = Callable[[Peer], Any] | bytes | None


@dataclass(frozen=True, slots=True)
class Step:
    label: str
    """The type of request; differences are counted by it."""
    sample: Sample
    method: str
    path: str
    body: Body = None
    query: Mapping[str, str] | Callable[[Peer], Mapping[str, str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def send(self, peer: Peer) -> Any:
        query = self.query(peer) if callable(self.query) else self.query
        body = self.body
        if callable(body):
            body = json.dumps(body(peer)).encode()
        headers = dict(self.headers)
        if body is not None:
            headers.setdefault("Content-Type", JSON)
        answer = peer.request(self.method, self.path, query, headers, body)
        self._remember(peer, answer.content)
        return answer

    def _remember(self, peer: Peer, content: Any) -> None:
        if not isinstance(content, dict) or "dryRun" in str(self.query):
            return
        if content.get("kind") == self.sample.kind and content.get("metadata", {}).get("uid"):
            peer.remember(self.path.removesuffix("/status"), content)
        token = content.get("metadata", {}).get("continue")
        if token:
            peer.tokens[self.path] = token


class Steps:
    """A stream of requests in one namespace."""

    def __init__(self, rng: Random, namespace: str) -> None:
        self._rng = rng
        self._namespace = namespace
        # Few kinds at a time, so that creates, conflicts and deletions hit the same objects.
        self._samples = rng.sample(SAMPLES, 3)
        self._makers: tuple[tuple[int, Callable[[Sample], Step]], ...] = (
            (14, self._create),
            (8, self._bad_create),
            (8, self._get),
            (6, self._list),
            (4, self._bad_list),
            (8, self._update),
            (5, self._bad_update),
            (5, self._json_patch),
            (5, self._merge_patch),
            (5, self._strategic),
            (10, self._apply),
            (4, self._bad_patch),
            (8, self._delete),
            (2, self._delete_collection),
            (5, self._subresource),
            (2, self._odd_path),
        )

    def next(self) -> Step:
        make = self._rng.choices(
            [maker for _, maker in self._makers], [weight for weight, _ in self._makers]
        )[0]
        return make(self._rng.choice(self._samples))

    # --- drawing --------------------------------------------------------------------------------

    def _name(self, sample: Sample) -> str:
        name = self._rng.choice(NAMES)
        return name if sample.namespaced else f"{self._namespace}-{name}"

    def _item(self, sample: Sample) -> tuple[str, str]:
        name = self._name(sample)
        return name, f"{sample.collection(self._namespace)}/{name}"

    def _options(self) -> dict[str, str]:
        """Query parameters of a write."""
        made: dict[str, str] = {}
        if self._rng.random() < 0.1:
            made["dryRun"] = "All"
        if self._rng.random() < 0.5:
            made["fieldManager"] = self._rng.choice(("one", "two"))
        if self._rng.random() < 0.3:
            made["fieldValidation"] = self._rng.choice(("Strict", "Warn", "Ignore"))
        return made

    # --- creating -------------------------------------------------------------------------------

    def _create(self, sample: Sample) -> Step:
        rng, name = self._rng, self._name(sample)
        obj = sample.manifest(rng, name)
        label = "create"
        query = self._options()
        chance = rng.random()
        if chance < 0.1:
            del obj["metadata"]["name"]
            obj["metadata"]["generateName"] = f"{self._namespace}-gen-"
            label, name = "create generateName", ""
            query["dryRun"] = "All"  # a random name cannot be used again
        elif chance < 0.25:
            label = "create unknown field"
            obj["unknownTop"] = 1
            next(iter(_inner(obj)), obj)["unknownInner"] = "x"
        elif chance < 0.3:
            label = "create namespaced explicitly"
            obj["metadata"]["namespace"] = self._namespace
        return Step(
            label, sample, "POST", sample.collection(self._namespace), lambda _: obj, query,
            name=name,
        )  # fmt: skip

    def _bad_create(self, sample: Sample) -> Step:
        rng, name = self._rng, self._name(sample)
        obj = sample.manifest(rng, name)
        metadata = obj["metadata"]
        path = sample.collection(self._namespace)
        query = self._options()
        headers: dict[str, str] = {}
        body: Body = lambda _: obj  # noqa: E731
        match rng.randrange(24):
            case 0:
                label = "no kind"
                del obj["kind"]
            case 1:
                label = "no apiVersion"
                del obj["apiVersion"]
            case 2:
                label = "wrong kind"
                obj["kind"] = "Other"
            case 3:
                label = "wrong version"
                obj["apiVersion"] = "example.com/v9"
            case 4:
                label = "wrong namespace"
                metadata["namespace"] = "elsewhere"
            case 5:
                label = "no name"
                del metadata["name"]
            case 6:
                label = "upper case name"
                metadata["name"] = "Upper"
            case 7:
                label = "long name"
                metadata["name"] = "n" * 300
            case 8:
                label = "resourceVersion given"
                metadata["resourceVersion"] = "1"
            case 9:
                label = "bad label key"
                metadata["labels"] = {"bad key!": "v"}
            case 10:
                label = "bad label value"
                metadata["labels"] = {"ok": "no spaces allowed"}
            case 11:
                label = "label of a number"
                metadata["labels"] = {"ok": 1}
            case 12:
                label = "empty body"
                body = b""
            case 13:
                label = "broken JSON"
                body = b'{"kind": "'
            case 14:
                label = "a list as body"
                body = b"[]"
            case 15:
                label = "unknown content type"
                headers["Content-Type"] = "text/plain"
            case 16:
                label = "create at a name"
                path = f"{path}/{name}"
            case 17:
                label = "bad annotation key"
                metadata["annotations"] = {"bad key!": "v"}
            case 18:
                label = "bad finalizer"
                metadata["finalizers"] = ["no-slash"]
            case 19:
                label = "bad owner"
                metadata["ownerReferences"] = [
                    {"apiVersion": "v1", "kind": "", "name": "x", "uid": ""}
                ]
            case 20:
                label = "bad dryRun"
                query["dryRun"] = "Some"
            case 21:
                label = "bad fieldValidation"
                query["fieldValidation"] = "Maybe"
            case 22:
                label = "spec of a string"
                field_name = next((key for key in obj if key not in _OUTER), "spec")
                obj[field_name] = "text"
            case _:
                label = "duplicate field"
                query["fieldValidation"] = rng.choice(("Strict", "Warn", "Ignore"))
                text = json.dumps(obj)
                body = (text[:-1] + ', "kind": ' + json.dumps(obj["kind"]) + "}").encode()
        return Step(f"bad create: {label}", sample, "POST", path, body, query, headers)

    # --- reading --------------------------------------------------------------------------------

    def _get(self, sample: Sample) -> Step:
        name, path = self._item(sample)
        headers: dict[str, str] = {}
        label = "get"
        chance = self._rng.random()
        if chance < 0.12:
            headers["Accept"], label = TABLE, "get table"
        elif chance < 0.24:
            headers["Accept"], label = PARTIAL, "get metadata"
        elif chance < 0.28:
            headers["Accept"], label = "text/csv", "get unacceptable"
        return Step(label, sample, "GET", path, headers=headers, name=name)

    def _list(self, sample: Sample) -> Step:
        rng = self._rng
        path = sample.collection(self._namespace)
        query: dict[str, str] = {}
        headers: dict[str, str] = {}
        label = "list"
        selectors = ["app=x", "app!=x", "app in (x,y)", "app notin (z)", "app", "!app",
                     "app=x,tier=1", "app==y", "tier>0", "app in ()"]  # fmt: skip
        if rng.random() < 0.5 or not sample.namespaced:
            query["labelSelector"] = rng.choice(selectors)
            label = f"list by label {query['labelSelector']}"
        elif rng.random() < 0.5:
            query["fieldSelector"] = rng.choice(
                ("metadata.name=a", "metadata.name!=a", *sample.fields)
            )
            label = f"list by field {query['fieldSelector'].partition('=')[0]}"
        if not sample.namespaced:
            # Other objects of this kind are not compared.
            query["fieldSelector"] = f"metadata.name={self._name(sample)}"
        chance = rng.random()
        if chance < 0.15:
            headers["Accept"], label = TABLE, f"{label} as table"
        elif chance < 0.3:
            headers["Accept"], label = PARTIAL_LIST, f"{label} as metadata"
        elif chance < 0.5:
            query["limit"] = rng.choice("12")
            label = f"{label} limited"
        if "limit" in query and rng.random() < 0.5:
            limit, chosen = query["limit"], dict(query)

            def going_on(peer: Peer) -> Mapping[str, str]:
                token = peer.tokens.get(path)
                return {**chosen, "limit": limit, **({"continue": token} if token else {})}

            return Step(f"{label} continued", sample, "GET", path, None, going_on, headers)
        return Step(label, sample, "GET", path, None, query, headers)

    def _bad_list(self, sample: Sample) -> Step:
        queries = (
            {"labelSelector": "a in (b"}, {"labelSelector": "=="}, {"labelSelector": "a=b=c"},
            {"labelSelector": "bad key=1"}, {"labelSelector": "a>b"},
            {"fieldSelector": "spec.nothing=1"}, {"fieldSelector": "metadata.name"},
            {"limit": "abc"}, {"limit": "-1"}, {"continue": "???"}, {"continue": "e30"},
            {"resourceVersion": "abc"}, {"resourceVersion": "-1"},
            {"resourceVersionMatch": "Exact"},
            {"resourceVersionMatch": "Never", "resourceVersion": "1"},
            {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
            {"sendInitialEvents": "true"},
            {"resourceVersionMatch": "NotOlderThan"},
            {"timeoutSeconds": "abc"},
            {"watch": "true", "sendInitialEvents": "true"},
            {"watch": "true", "resourceVersionMatch": "NotOlderThan"},
            {"watch": "true", "resourceVersion": "abc"},
        )  # fmt: skip
        query: dict[str, str] = self._rng.choice(queries)
        if not sample.namespaced:
            # If a server accepts it: other objects of this kind are not compared.
            query = {"fieldSelector": "metadata.name=none", **query}
        if "watch" in query:
            query = {**query, "timeoutSeconds": "1"}  # in case a server accepts it
        path = sample.collection(self._namespace)
        return Step(f"bad list: {json.dumps(query)}", sample, "GET", path, None, query)

    # --- updating -------------------------------------------------------------------------------

    def _changed(self, sample: Sample, path: str) -> Callable[[Peer], Object]:
        patch, blank = sample.change(self._rng), sample.manifest(self._rng, path.rpartition("/")[2])

        def body(peer: Peer) -> Object:
            made = _merge(copy.deepcopy(peer.objects.get(path, blank)), patch)
            if sample.is_counted:
                made["metadata"].pop("resourceVersion", None)
            return made

        return body

    def _update(self, sample: Sample) -> Step:
        name, path = self._item(sample)
        changed = self._changed(sample, path)
        chance = self._rng.random()
        if chance < 0.6:
            return Step("update", sample, "PUT", path, changed, self._options(), name=name)
        if chance < 0.8:

            def body(peer: Peer) -> Object:
                obj = changed(peer)
                obj["metadata"].pop("resourceVersion", None)
                obj["metadata"].pop("managedFields", None)
                return obj

            return Step(
                "update without version", sample, "PUT", path, body, self._options(), name=name
            )

        def stale(peer: Peer) -> Object:
            obj = changed(peer)
            before = peer.older.get(path)
            if before is not None and not sample.is_counted:
                obj["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
            return obj

        return Step("update stale", sample, "PUT", path, stale, self._options(), name=name)

    def _bad_update(self, sample: Sample) -> Step:
        _, path = self._item(sample)
        changed = self._changed(sample, path)
        case = self._rng.randrange(7)

        def body(peer: Peer) -> Object:
            obj = changed(peer)
            metadata = obj["metadata"]
            match case:
                case 0:
                    metadata["uid"] = "00000000-0000-0000-0000-000000000000"
                case 1:
                    metadata["name"] = "other"
                case 2:
                    obj.pop("kind", None)
                case 3:
                    metadata["namespace"] = "elsewhere"
                case 4:
                    metadata["resourceVersion"] = "not-a-number"
                case 5:
                    metadata["labels"] = {"bad key!": "v"}
                case _:
                    metadata["managedFields"] = []
            return obj

        labels = ("uid", "name", "no kind", "namespace", "version", "label", "no managers")
        return Step(f"bad update: {labels[case]}", sample, "PUT", path, body, self._options())

    # --- patching -------------------------------------------------------------------------------

    def _json_patch(self, sample: Sample) -> Step:
        rng = self._rng
        name, path = self._item(sample)
        operations: list[Object] = rng.choice(
            (
                [{"op": "add", "path": "/metadata/annotations", "value": {"p": rng.choice("12")}}],
                [{"op": "replace", "path": "/metadata/labels", "value": {"app": "y"}}],
                [{"op": "remove", "path": "/metadata/labels"}],
                [{"op": "test", "path": "/metadata/name", "value": name}],
                [{"op": "test", "path": "/metadata/name", "value": "not-this"}],
                [{"op": "remove", "path": "/metadata/nothing"}],
                [{"op": "add", "path": "/metadata/labels/new", "value": "1"}],
                [{"op": "nonsense", "path": "/metadata/labels"}],
                [{"op": "copy", "from": "/metadata/name", "path": "/metadata/annotations/n"}],
            )
        )
        label = f"json patch {operations[0]['op']} {operations[0]['path']}"
        return self._patch(label, sample, path, JSON_PATCH, lambda _: operations)

    def _merge_patch(self, sample: Sample) -> Step:
        rng = self._rng
        _, path = self._item(sample)
        patch, label = sample.change(rng), "merge patch"
        chance = rng.random()
        if chance < 0.2:
            patch, label = {"metadata": {"labels": None}}, "merge patch removing"
        elif chance < 0.3:
            patch, label = (
                {"metadata": {"annotations": {"note": None, "more": "1"}}},
                "merge patch mixed",
            )
        elif chance < 0.4:
            patch, label = {**patch, "unknownTop": 1}, "merge patch unknown field"
        elif chance < 0.5:
            patch, label = {}, "merge patch empty"
        elif chance < 0.6:
            patch, label = {"metadata": {"resourceVersion": "1"}}, "merge patch stale"
        return self._patch(label, sample, path, MERGE_PATCH, lambda _: patch)

    def _strategic(self, sample: Sample) -> Step:
        rng = self._rng
        _, path = self._item(sample)
        patch, label = sample.change(rng), "strategic patch"
        if sample.plural == "pods":
            patch = rng.choice(
                (
                    patch,
                    {"spec": {"containers": [{"name": "main", "image": "other:1"}]}},
                    {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}},
                    {"spec": {"tolerations": [{"key": "n", "operator": "Exists"}]}},
                    {"metadata": {"labels": {"$patch": "replace", "only": "1"}}},
                )
            )
        elif sample.plural == "deployments":
            patch = rng.choice(
                (
                    patch,
                    {"spec": {"template": {"spec": {"containers": [
                        {"name": "new", "image": "i"}]}}}},
                    {"spec": {"template": {"spec": {"containers": [
                        {"name": "main", "env": [{"name": "B", "$patch": "delete"}]}]}}}},
                    {"spec": {"template": {"spec": {"$setElementOrder/containers": [
                        {"name": "main"}], "containers": [{"name": "main", "image": "z"}]}}}},
                )
            )  # fmt: skip
        return self._patch(label, sample, path, STRATEGIC, lambda _: patch)

    def _apply(self, sample: Sample) -> Step:
        rng = self._rng
        name, path = self._item(sample)
        obj = sample.manifest(rng, name)
        label = "apply"
        chance = rng.random()
        if chance < 0.3:
            obj = _merge({k: v for k, v in obj.items() if k in _OUTER}, sample.change(rng))
            label = "apply partial"
        elif chance < 0.4:
            obj["unknownTop"] = 1
            label = "apply unknown field"
        query = self._options()
        query["fieldManager"] = rng.choice(("one", "two", "three"))
        if rng.random() < 0.4:
            query["force"] = "true"
        return Step(
            label, sample, "PATCH", path, lambda _: obj, query, {"Content-Type": APPLY}, name
        )

    def _bad_patch(self, sample: Sample) -> Step:
        rng = self._rng
        name, path = self._item(sample)
        manifest = sample.manifest(rng, name)
        match rng.randrange(12):
            case 0:
                return self._patch("bad patch: broken", sample, path, MERGE_PATCH, b"{")
            case 1:
                return self._patch("bad patch: list", sample, path, MERGE_PATCH, b"[]")
            case 2:
                return self._patch("bad patch: object", sample, path, JSON_PATCH, b"{}")
            case 3:
                return self._patch("bad patch: type", sample, path, "text/plain", b"{}")
            case 4:
                return self._patch("bad patch: JSON type", sample, path, JSON, b"{}")
            case 5:
                manifest["metadata"]["managedFields"] = [{"manager": "x"}]
                body, label = manifest, "managers"
            case 6:
                manifest["metadata"]["name"] = "other"
                body, label = manifest, "name"
            case 7:
                del manifest["kind"]
                body, label = manifest, "no kind"
            case 8:
                manifest["metadata"]["namespace"] = "elsewhere"
                body, label = manifest, "namespace"
            case 9:
                return Step(
                    "bad apply: no manager", sample, "PATCH", path, lambda _: manifest, {},
                    {"Content-Type": APPLY},
                )  # fmt: skip
            case 10:
                bad = {"metadata": {"labels": "text"}}
                return self._patch("bad patch: labels", sample, path, MERGE_PATCH, lambda _: bad)
            case _:
                renamed = {"metadata": {"name": "renamed"}}
                return self._patch("bad patch: name", sample, path, MERGE_PATCH, lambda _: renamed)
        return Step(
            f"bad apply: {label}", sample, "PATCH", path, lambda _: body,
            {"fieldManager": "one"}, {"Content-Type": APPLY},
        )  # fmt: skip

    def _patch(self, label: str, sample: Sample, path: str, media: str, body: Body) -> Step:
        headers = {"Content-Type": media}
        return Step(label, sample, "PATCH", path, body, self._options(), headers)

    # --- deleting -------------------------------------------------------------------------------

    def _delete(self, sample: Sample) -> Step:
        rng = self._rng
        name, path = self._item(sample)
        case = rng.randrange(9)
        if sample.is_counted and case == 6:
            case = 4
        labels = ("plain", "plain", "plain", "background", "uid", "wrong uid", "version",
                  "bad policy", "dry run")  # fmt: skip

        def body(peer: Peer) -> Object:
            options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
            seen = peer.objects.get(path, {}).get("metadata", {})
            if sample.plural == "jobs":
                # By default upstream keeps the pods of a Job (docs/conformance.md).
                options["propagationPolicy"] = "Background"
            match case:
                case 3:
                    options["propagationPolicy"] = "Background"
                case 4:
                    options["preconditions"] = {"uid": seen.get("uid", "none")}
                case 5:
                    options["preconditions"] = {"uid": "00000000-0000-0000-0000-000000000000"}
                case 6:
                    options["preconditions"] = {"resourceVersion": seen.get("resourceVersion", "1")}
                case 7:
                    options["propagationPolicy"] = "Sideways"
                case 8:
                    options["dryRun"] = ["All"]
            return options

        return Step(
            f"delete {labels[case]}",
            sample,
            "DELETE",
            path,
            None if case < 3 and sample.plural != "jobs" else body,
            name=name,
        )

    def _delete_collection(self, sample: Sample) -> Step:
        query = {"labelSelector": f"app={self._rng.choice('xyz')}"}
        if sample.plural == "jobs":
            query["propagationPolicy"] = "Background"
        if not sample.namespaced:
            query["fieldSelector"] = f"metadata.name={self._name(sample)}"
        path = sample.collection(self._namespace)
        return Step("delete collection", sample, "DELETE", path, None, query)

    # --- the rest -------------------------------------------------------------------------------

    def _subresource(self, sample: Sample) -> Step:
        rng = self._rng
        name, path = self._item(sample)
        which = rng.choice((*sample.subresources, *sample.subresources, "nothing"))
        if which == "scale" and rng.random() < 0.5:
            patch: dict[str, Any] = {
                "spec": {"replicas": 0 if not sample.custom else rng.choice((3, 4))}
            }
            return self._patch("patch scale", sample, f"{path}/scale", MERGE_PATCH, lambda _: patch)
        if which == "status" and rng.random() < 0.6:
            patch = {
                "status": {"phase": "Running"}
                if sample.plural in ("pods", "widgets", "podgroups")
                else {}
            }
            return self._patch(
                "patch status", sample, f"{path}/status", MERGE_PATCH, lambda _: patch
            )
        return Step(f"get {which}", sample, "GET", f"{path}/{which}", name=name)

    def _odd_path(self, sample: Sample) -> Step:
        path = sample.collection(self._namespace)
        method, odd = self._rng.choice(
            (
                ("PUT", path), ("PATCH", path), ("GET", path + "x"), ("POST", path + "/a/status"),
                ("GET", path.replace("/v1", "/v7")), ("DELETE", path + "/a/status"),
                ("PATCH", path + "/"),
            )
        )  # fmt: skip
        headers = {"Content-Type": MERGE_PATCH} if method == "PATCH" else {}
        body = None if method in ("GET", "DELETE") else b"{}"
        where = odd.removeprefix(path)
        return Step(f"odd {method} {where}", sample, method, odd, body, {}, headers)


_OUTER = ("apiVersion", "kind", "metadata")


def _inner(obj: Object) -> list[Object]:
    return [value for key, value in obj.items() if key not in _OUTER and isinstance(value, dict)]


def _merge(target: Object, patch: Mapping[str, Any]) -> Object:
    """Apply a merge patch to build a body."""
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)
    return target
