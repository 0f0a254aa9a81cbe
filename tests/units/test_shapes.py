"""Shapes resolve references on demand and read merge extensions."""

from hekla.units.objects import Object
from hekla.units.shapes import ANY, OBJECT_META, Definitions, Shape

POD = {
    "type": "object",
    "properties": {
        "metadata": {"$ref": "#/definitions/Meta"},
        "spec": {"allOf": [{"$ref": "#/components/schemas/Spec"}], "default": {}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "broken": {"$ref": "#/definitions/Missing"},
        "loop": {"$ref": "#/definitions/Loop"},
        "limit": {"x-kubernetes-int-or-string": True},
        "amount": {"oneOf": [{"type": "string"}, {"type": "number"}]},
    },
}
DEFINITIONS: dict[str, Object] = {
    "Meta": {
        "type": "object",
        "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}},
    },
    "Spec": {
        "type": "object",
        "properties": {
            "containers": {
                "type": "array",
                "items": {"$ref": "#/definitions/Container"},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-merge-key": "name",
                "x-kubernetes-patch-strategy": "merge",
            },
            "volumes": {"type": "array", "x-kubernetes-patch-strategy": "merge,retainKeys"},
            "selector": {"type": "object", "x-kubernetes-map-type": "atomic"},
        },
    },
    "Container": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "protocol": {"type": "string", "default": "TCP"},
            "inner": {"$ref": "#/definitions/Container"},
        },
    },
    "Loop": {"$ref": "#/definitions/Loop"},
}
SHAPE = Shape.from_schema(POD, DEFINITIONS)


def test_kinds_of_shapes() -> None:
    kinds = {
        "metadata": "object",
        "spec": "object",
        "status": "any",
        "broken": "any",
        "loop": "any",
        "limit": "scalar",
        "amount": "scalar",
        "unheard-of": "any",
    }
    assert {name: SHAPE.field(name).kind for name in kinds} == kinds
    assert SHAPE.field("metadata").field("labels").kind == "map"
    assert SHAPE.field("metadata").field("labels").field("anything").kind == "scalar"
    assert SHAPE.field("spec").field("containers").kind == "array"


def test_merge_keys_of_lists() -> None:
    containers = SHAPE.field("spec").field("containers")
    assert containers.list_type == "map"
    assert containers.list_keys == ("name",)
    assert containers.patch_merge_key == "name"
    assert containers.patch_strategies == ("merge",)
    volumes = SHAPE.field("spec").field("volumes")
    assert volumes.list_type == "atomic"
    assert volumes.patch_strategies == ("merge", "retainKeys")
    assert volumes.items is ANY


def test_defaults_and_atomic_maps() -> None:
    assert SHAPE.field("spec").has_default
    assert SHAPE.field("spec").default == {}
    assert SHAPE.field("spec").field("selector").is_atomic_map
    item = SHAPE.field("spec").field("containers").items
    assert item.default_of("protocol") == "TCP"
    assert item.default_of("name") is None


def test_recursive_schemas_are_expanded_on_demand() -> None:
    item = SHAPE.field("spec").field("containers").items
    assert item.field("inner").field("inner").field("inner") is item


def test_shapes_are_cached() -> None:
    assert SHAPE.field("spec") is SHAPE.field("spec")
    definitions = Definitions(DEFINITIONS)
    one, other = Shape.from_schema(POD, definitions), Shape.from_schema(POD, definitions)
    assert one.field("metadata") is other.field("metadata") is definitions.shape("Meta")


def test_unknown_structure_is_any_at_every_level() -> None:
    assert ANY.kind == "any"
    assert ANY.field("a").items.field("b") is ANY
    assert ANY.list_type == "atomic"


def test_crd_shape_gets_object_metadata() -> None:
    crd = Shape.from_schema({"type": "object", "properties": {"metadata": {"type": "object"}}})
    shape = crd.with_field("metadata", OBJECT_META)
    assert crd.field("metadata").kind == "any"
    assert shape.field("metadata").field("finalizers").list_type == "set"
    assert shape.field("metadata").field("ownerReferences").list_keys == ("uid",)
    assert shape.field_names == {"metadata"}
    assert ANY.with_field("metadata", OBJECT_META).kind == "object"
    assert ANY.kind == "any"
