"""The CRDs: equal in both formats, structural, and compatible with Volcano's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.api import crds, kinds
from hekla.units.objects import Object
from tests.api.steps import steps

REPOSITORY = Path(__file__).parents[2]

# Suffixes of paths where ours differ from Volcano 1.14.1, with the reason.
IN_EVERY_JOB = {
    # 1.15 has one structure of network topology everywhere, without a pattern for the tier's name
    "/networkTopology/properties/highestTierName/pattern",
    # our pod templates are those of Kubernetes 1.36; Volcano 1.14 has those of 1.34
    "/template/properties/spec/properties/schedulingGroup",
    "/podCertificate/properties/userAnnotations",
}
KNOWN_DIFFERENCES = {
    "jobs.batch.volcano.sh": IN_EVERY_JOB,
    "cronjobs.batch.volcano.sh": IN_EVERY_JOB,
    "jobflows.flow.volcano.sh": IN_EVERY_JOB,
    "jobtemplates.flow.volcano.sh": IN_EVERY_JOB,
    # 1.15 has a default priority, and lets node agents report allocations of pods
    "queues.scheduling.volcano.sh": {"/spec/properties/priority/default"},
    "numatopologies.nodeinfo.volcano.sh": {"/spec/properties/podAllocations"},
}


def without_prose(node: Any, is_properties: bool = False) -> Any:
    """Return the schema without descriptions and messages."""
    if isinstance(node, list):
        return [without_prose(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: without_prose(value, key == "properties" and not is_properties)
        for key, value in node.items()
        if is_properties or key not in ("description", "message") or not isinstance(value, str)
    }


def differences(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            if key in theirs and key in ours:
                yield from differences(theirs[key], ours[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}"
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (a, b) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(a, b, f"{path}/{index}")
    elif theirs != ours:
        yield path


def by_name() -> dict[str, Object]:
    return {crd["metadata"]["name"]: crd for crd in crds.load()}


UPSTREAM = sorted(
    name
    for name in by_name()
    if "datadependency" not in name and "training" not in name  # an add-on installs these
)


@pytest.fixture(scope="session")
def upstream(volcano_module: Path) -> dict[str, Object]:
    chart = volcano_module / "installer" / "helm" / "chart" / "volcano"
    found = {}
    for folder in (chart / "crd" / "bases", chart / "charts" / "jobflow" / "crd" / "bases"):
        for path in sorted(folder.glob("*.yaml")):
            crd = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
            found[crd["metadata"]["name"]] = crd
    return found


def test_all_volcano_crds_are_served(upstream: dict[str, Object]) -> None:
    assert sorted(upstream) == UPSTREAM


@pytest.mark.parametrize("name", UPSTREAM)
def test_crd_equals_volcanos_except_known_differences(
    upstream: dict[str, Object], name: str
) -> None:
    theirs, ours = (without_prose(each["spec"]) for each in (upstream[name], by_name()[name]))
    known = KNOWN_DIFFERENCES.get(name, set())
    found = list(differences(theirs, ours))
    assert [path for path in found if not path.endswith(tuple(known))] == []
    gone = {ending for ending in known if not any(path.endswith(ending) for path in found)}
    assert gone == set(), "these differences are listed but no longer exist"


def test_add_on_kinds_are_served_as_well() -> None:
    assert {"datasources", "datasourceclaims", "hyperjobs"} == {
        crd["spec"]["names"]["plural"] for name, crd in by_name().items() if name not in UPSTREAM
    }


CATALOGUE = {
    "Job": ("batch.volcano.sh", ("vcjob", "vj"), True, ("status",)),
    "CronJob": ("batch.volcano.sh", ("cronvcjob", "cronvj"), True, ("status",)),
    "Command": ("bus.volcano.sh", (), True, ()),
    "PodGroup": ("scheduling.volcano.sh", ("pg", "podgroup-v1beta1"), True, ()),
    "Queue": ("scheduling.volcano.sh", ("q", "queue-v1beta1"), False, ("status",)),
    "JobFlow": ("flow.volcano.sh", ("jf",), True, ("status",)),
    "JobTemplate": ("flow.volcano.sh", ("jt",), True, ("status",)),
    "HyperNode": ("topology.volcano.sh", ("hn",), False, ("status",)),
    "Numatopology": ("nodeinfo.volcano.sh", ("numatopo",), False, ()),
    "ColocationConfiguration": ("config.volcano.sh", (), True, ("status",)),
    "NodeShard": ("shard.volcano.sh", ("nsh",), False, ("status",)),
    "DataSource": ("datadependency.volcano.sh", (), False, ("status",)),
    "DataSourceClaim": ("datadependency.volcano.sh", (), True, ("status",)),
    "HyperJob": ("training.volcano.sh", ("hyperjob", "hj"), True, ("status",)),
}


@pytest.mark.parametrize("kind", CATALOGUE)
def test_names_scope_and_subresources_are_those_of_the_catalogue(kind: Any) -> None:
    group, want_short, want_namespaced, want_subresources = CATALOGUE[kind]
    crd = crds.find(group, kind)
    assert crd is not None
    served = kinds.from_crd(crd, crd["spec"]["versions"][0]["name"])
    assert (want_short, want_namespaced, want_subresources) == (
        served.short_names,
        served.namespaced,
        served.subresources,
    )


def test_the_catalogue_is_complete() -> None:
    assert sorted(CATALOGUE) == sorted(crd["spec"]["names"]["kind"] for crd in crds.load())
    assert crds.find("batch.volcano.sh", "Unheard") is None


def test_yaml_and_json_hold_the_same_objects() -> None:
    paths = crds.manifests()
    assert len(paths) == len(crds.load())
    for path in paths:
        crd = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        assert crd == by_name()[crd["metadata"]["name"]], path.name


def schemas_below(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from schemas_below(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from schemas_below(schema[keyword], f"{path}[]")


def every_schema() -> Iterator[tuple[str, Any]]:
    for crd in crds.load():
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for path, schema in schemas_below(root):
            yield f"{crd['metadata']['name']}{path}", schema


def test_schemas_are_structural() -> None:
    for path, schema in every_schema():
        assert "$ref" not in schema, path
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        assert not ("properties" in schema and "additionalProperties" in schema), path


def test_keys_of_list_maps_are_required_or_have_a_default() -> None:
    seen = 0
    for path, schema in every_schema():
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            item = schema["items"]
            field = item["properties"][key]
            assert key in item.get("required", ()) or "default" in field, f"{path}: {key}"
            seen += 1
    assert seen > 100


def test_defaults_satisfy_their_own_schema() -> None:
    for path, schema in every_schema():
        if "default" in schema:
            default = schema["default"]
            assert default in schema.get("enum", [default]), path
            assert default >= schema.get("minimum", default), path


def test_fields_and_kinds_are_described() -> None:
    for crd in crds.load():
        root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        assert root["description"]
        for name, field in root["properties"].get("spec", {}).get("properties", {}).items():
            assert field["description"], name


def test_crds_load_quickly_enough_for_a_one_second_start() -> None:
    assert steps(crds.load.__wrapped__) < 100, "read as one piece (5 ms)"


def test_shipped_schemas_are_what_the_generator_writes(kubernetes_module: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.schemas.generate", "--check"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
