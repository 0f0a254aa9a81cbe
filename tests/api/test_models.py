"""Models match the schemas field by field, and decode objects of real clients."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hekla.api import (
    batch,
    bus,
    cluster,
    config,
    core,
    crds,
    datadependency,
    flow,
    meta,
    nodeinfo,
    pods,
    scheduling,
    schemas,
    shard,
    topology,
    training,
)
from hekla.units.objects import Object

VOLCANO = {
    "batch.volcano.sh": (batch.Job, batch.CronJob),
    "bus.volcano.sh": (bus.Command,),
    "config.volcano.sh": (config.ColocationConfiguration,),
    "datadependency.volcano.sh": (datadependency.DataSource, datadependency.DataSourceClaim),
    "flow.volcano.sh": (flow.JobFlow, flow.JobTemplate),
    "nodeinfo.volcano.sh": (nodeinfo.Numatopology,),
    "scheduling.volcano.sh": (scheduling.PodGroup, scheduling.Queue),
    "shard.volcano.sh": (shard.NodeShard,),
    "topology.volcano.sh": (topology.HyperNode,),
    "training.volcano.sh": (training.HyperJob,),
}
CUSTOM = [(group, model) for group, models in VOLCANO.items() for model in models]
BUILT_IN = {
    "v1": (
        core.Pod,
        core.Node,
        core.Namespace,
        core.Service,
        core.Endpoints,
        core.ConfigMap,
        core.Secret,
        core.ServiceAccount,
        core.Event,
        core.PersistentVolumeClaim,
        core.PersistentVolume,
        core.ResourceQuota,
        core.LimitRange,
    ),
    "apps/v1": (cluster.ReplicaSet, cluster.StatefulSet, cluster.Deployment),
    "scheduling.k8s.io/v1": (cluster.PriorityClass,),
    "policy/v1": (cluster.PodDisruptionBudget,),
    "coordination.k8s.io/v1": (cluster.Lease,),
    "storage.k8s.io/v1": (cluster.StorageClass, cluster.CSINode),
    "rbac.authorization.k8s.io/v1": (
        cluster.Role,
        cluster.ClusterRole,
        cluster.RoleBinding,
        cluster.ClusterRoleBinding,
    ),
}
NATIVE = [(version, model) for version, models in BUILT_IN.items() for model in models]
# Plain dicts on purpose, since controllers copy them: the walk ends here.
OPAQUE = {"template", "volumeClaim", "jobSpec", "templateSpec"}


def custom_schema(group: str, model: Any) -> Object:
    crd = crds.find(group, model.__name__)
    assert crd is not None
    schema: Object = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def unwrap(hint: Any) -> Any:
    """Return the model in `X | None`, `tuple[X, ...]` or `dict[str, X]`, if any."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    for part in typing.get_args(hint):
        if part is not types.NoneType and (found := unwrap(part)) is not None:
            return found
    return None


def below(schema: Any) -> Any:
    schema = schemas.resolve(schema)
    while "items" in schema or isinstance(schema.get("additionalProperties"), dict):
        schema = schemas.resolve(schema.get("items") or schema["additionalProperties"])
    return schema


def fields_of(model: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(model)
    return {f.encode_name: hints[f.name] for f in msgspec.structs.fields(model)}


def walk(model: Any, schema: Any, path: str = "") -> Iterator[Any]:
    """Yield (path, model's fields, schema's properties) for a model and its nested models."""
    properties = schema.get("properties", {})
    fields = fields_of(model)
    yield path or model.__name__, fields, properties
    for name, hint in fields.items():
        inner = unwrap(hint)
        if inner is not None and name in properties and inner is not meta.ObjectMeta:
            yield from walk(inner, below(properties[name]), f"{path}.{name}")


@pytest.mark.parametrize(("group", "model"), CUSTOM, ids=lambda x: getattr(x, "__name__", x))
def test_every_field_of_a_volcano_crd_is_in_its_model(group: str, model: Any) -> None:
    for path, fields, properties in walk(model, custom_schema(group, model)):
        assert properties.keys() - fields.keys() == set(), path


@pytest.mark.parametrize(("group", "model"), CUSTOM, ids=lambda x: getattr(x, "__name__", x))
def test_only_copied_fields_have_no_model(group: str, model: Any) -> None:
    for path, fields, properties in walk(model, custom_schema(group, model)):
        for name, hint in fields.items():
            has_fields = "properties" in below(properties[name])
            if has_fields and unwrap(hint) is None:
                copied = name in OPAQUE or (name == "spec" and hint == dict[str, typing.Any])
                assert copied, f"{path}.{name}"


@pytest.mark.parametrize(("group", "model"), CUSTOM, ids=lambda x: getattr(x, "__name__", x))
def test_no_model_of_a_volcano_kind_has_a_field_that_its_crd_lacks(group: str, model: Any) -> None:
    for path, fields, properties in walk(model, custom_schema(group, model)):
        assert fields.keys() - properties.keys() == set(), path


@pytest.mark.parametrize(("version", "model"), NATIVE, ids=lambda x: getattr(x, "__name__", x))
def test_no_model_of_a_built_in_kind_has_a_field_that_its_schema_lacks(
    version: str, model: Any
) -> None:
    schema = schemas.schema_for(version, model.__name__)
    for path, fields, properties in walk(model, schema):
        assert fields.keys() - properties.keys() == set(), path


def test_metadata_fields_are_those_of_the_schema() -> None:
    properties = schemas.definitions()[schemas.OBJECT_META]["properties"]
    left_out = properties.keys() - fields_of(meta.ObjectMeta).keys()
    assert left_out == {"managedFields", "selfLink"}
    assert fields_of(meta.ObjectMeta).keys() <= properties.keys()


JSON_TYPES = {"string": str, "integer": int, "boolean": bool, "array": tuple, "object": dict}


@pytest.mark.parametrize(("group", "model"), CUSTOM, ids=lambda x: getattr(x, "__name__", x))
def test_field_types_of_volcano_kinds_match_the_crd(group: str, model: Any) -> None:
    for path, fields, properties in walk(model, custom_schema(group, model)):
        for name, hint in fields.items():
            schema = properties[name]
            if "type" not in schema:
                continue
            parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
            origins = {typing.get_origin(p) or p for p in parts} - {types.NoneType}
            want = JSON_TYPES[schema["type"]]
            for origin in origins:
                is_model = isinstance(origin, type) and issubclass(origin, msgspec.Struct)
                assert (want is dict and is_model) or origin is want, f"{path}.{name}"


def test_defaults_of_the_crds_are_those_of_the_models() -> None:
    for model, path, want in (
        (scheduling.NetworkTopology, "mode", "hard"),
        (scheduling.QueueSpec, "weight", 1),
        (config.MemoryQos, "high_ratio", 100),
        (training.ReplicatedJob, "replicas", 1),
        (datadependency.DataSourceSpec, "reclaim_policy", "Retain"),
    ):
        assert getattr(model(), path) == want


POD = b"""{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns","uid":"u-1",
"creationTimestamp":null,"labels":{"app":"x"},"ownerReferences":[
{"apiVersion":"batch.volcano.sh/v1alpha1","kind":"Job","name":"j","uid":"u","controller":true}],
"managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{}}}]},
"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":2,"memory":"1Gi"}},
"ports":[{"containerPort":80,"hostPort":8080}]}],
"initContainers":[{"name":"s","image":"i","restartPolicy":"Always"}],
"schedulingGates":[{"name":"g"}],"overhead":{"cpu":"10m"},"priority":5,
"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
[{"topologyKey":"kubernetes.io/hostname","labelSelector":{"matchLabels":{"app":"x"}}}]}},
"topologySpreadConstraints":[{"maxSkew":2,"topologyKey":"zone","whenUnsatisfiable":"ScheduleAnyway"}],
"someNewField":{"a":1}},"status":{"phase":"Running","podIP":"10.0.0.1"}}"""


def test_pod_is_decoded_with_all_scheduling_fields() -> None:
    pod = meta.decode(POD, core.Pod)
    assert (pod.key, pod.uid, pod.labels) == ("ns/a", "u-1", {"app": "x"})
    assert pod.metadata.controller is not None
    assert pod.metadata.controller.name == "j"
    assert pod.spec.containers[0].resources.requests == {"cpu": 2, "memory": "1Gi"}
    assert pod.spec.containers[0].ports[0].host_port == 8080
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert (pod.spec.scheduling_gates[0].name, pod.spec.priority) == ("g", 5)
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.pod_anti_affinity is not None
    term = pod.spec.affinity.pod_anti_affinity.required[0]
    assert term.label_selector is not None
    assert term.label_selector.compiled().matches({"app": "x"})
    assert pod.spec.topology_spread_constraints[0].max_skew == 2
    assert (pod.status.phase, pod.status.pod_ip) == ("Running", "10.0.0.1")


def test_null_counts_as_absent() -> None:
    data = b'{"metadata":{"name":"q","labels":null},"spec":null,"status":{"allocated":null}}'
    queue = meta.decode(data, scheduling.Queue)
    assert (queue.name, queue.labels, queue.spec.weight) == ("q", {}, 1)
    assert meta.convert({"metadata": {"name": "q", "labels": None}}, scheduling.Queue).labels == {}


def test_wrong_type_is_rejected_with_its_path() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.spec\.weight"):
        meta.decode(b'{"spec":{"weight":"heavy"}}', scheduling.Queue)


def test_models_are_frozen_and_take_keywords_only() -> None:
    queue = scheduling.Queue()
    with pytest.raises(AttributeError):
        queue.kind = "Other"
    with pytest.raises(TypeError):
        scheduling.Queue("v1")


def test_policy_combines_event_and_events() -> None:
    policy = batch.LifecyclePolicy(event="PodFailed", events=("PodEvicted",))
    assert policy.all_events == ("PodEvicted", "PodFailed")
    assert batch.LifecyclePolicy(exit_code=3).all_events == ()


def test_job_model_keeps_the_pod_template_as_dict() -> None:
    job = meta.convert(
        {
            "metadata": {"name": "j", "uid": "u"},
            "spec": {
                "tasks": [
                    {"replicas": 2, "template": {"spec": {"brandNew": 1, "nodeName": "n"}}},
                    {"replicas": 3},
                ]
            },
        },
        batch.Job,
    )
    assert job.spec.tasks[0].template["spec"]["brandNew"] == 1
    assert meta.convert(job.spec.tasks[0].template, pods.PodTemplateSpec).spec.node_name == "n"
    assert (job.pod_group_name, job.spec.total_replicas) == ("j-u", 5)


def test_status_is_encoded_with_its_kind() -> None:
    status = meta.Status(status="Failure", reason="NotFound", code=404, message="no pod a")
    assert status.to_dict() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "reason": "NotFound",
        "code": 404,
        "message": "no pod a",
    }
