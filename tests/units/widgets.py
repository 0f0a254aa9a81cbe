"""A small kind with every structure of server-side apply, for tests."""

from typing import Any

from hypothesis import strategies as st

from hekla.units.objects import Object
from hekla.units.shapes import OBJECT_META, Shape

TEXT = {"type": "string"}
WIDGET = Shape.from_schema(
    {
        "type": "object",
        "properties": {
            "apiVersion": TEXT,
            "kind": TEXT,
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "properties": {
                    "replicas": {"type": "integer"},
                    "paused": {"type": "boolean"},
                    "args": {"type": "array", "items": TEXT},
                    "guards": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
                    "selector": {
                        "type": "object",
                        "additionalProperties": TEXT,
                        "x-kubernetes-map-type": "atomic",
                    },
                    "options": {"type": "object", "additionalProperties": TEXT},
                    "nested": {
                        "type": "object",
                        "properties": {"one": {"type": "integer"}, "two": {"type": "integer"}},
                    },
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "containers": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "properties": {
                                "name": TEXT,
                                "image": TEXT,
                                "ports": {
                                    "type": "array",
                                    "x-kubernetes-list-type": "map",
                                    "x-kubernetes-list-map-keys": ["port", "protocol"],
                                    "items": {
                                        "type": "object",
                                        "properties": {
                                            "port": {"type": "integer"},
                                            "protocol": {"type": "string", "default": "TCP"},
                                            "name": TEXT,
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
            "status": {
                "type": "object",
                "properties": {
                    "phase": TEXT,
                    "conditions": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": {"type": "object", "properties": {"type": TEXT, "status": TEXT}},
                    },
                },
            },
        },
    }
).with_field("metadata", OBJECT_META)

VERSION = "example.com/v1"


def widget(spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a widget named w; keyword arguments add to metadata, `status` to the object."""
    status = more.pop("status", None)
    item: dict[str, Any] = {
        "apiVersion": VERSION,
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default", **more},
    }
    if spec is not None:
        item["spec"] = spec
    if status is not None:
        item["status"] = status
    return item


def owners(item: dict[str, Any]) -> dict[str, Any]:
    """Return `manager/operation` -> fieldsV1 of an object's managedFields."""
    return {
        f"{entry['manager']}/{entry['operation']}": entry["fieldsV1"]
        for entry in item["metadata"].get("managedFields", [])
    }


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """Return the object without its managedFields."""
    metadata = {key: item["metadata"][key] for key in item["metadata"] if key != "managedFields"}
    return {**item, "metadata": metadata}


ports: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {"port": st.sampled_from([80, 81])},
    optional={"protocol": st.sampled_from(["TCP", "UDP"])},
)
containers: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {"name": st.sampled_from("pq")},
    optional={
        "image": st.sampled_from("12"),
        "ports": st.lists(
            ports,
            max_size=2,
            unique_by=lambda port: (port["port"], port.get("protocol", "TCP")),
        ),
    },
)
specs: st.SearchStrategy[Object] = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "args": st.lists(st.sampled_from("ab"), max_size=2),
        "guards": st.lists(st.sampled_from("xyz"), max_size=3, unique=True),
        "selector": st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2),
        "options": st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3),
        "nested": st.fixed_dictionaries({}, optional={"one": st.integers(0, 1)}),
        "containers": st.lists(
            containers, max_size=2, unique_by=lambda container: container["name"]
        ),
    },
)
