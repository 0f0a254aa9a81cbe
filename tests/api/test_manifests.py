"""Manifests of Kubernetes and Volcano are accepted; intentionally broken ones are rejected.

The checks run on files, without a kube-apiserver: what upstream tests and add-ons use is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml

from hekla.api import crds, defaults, kinds, rules

FOLDERS = ("hack/testdata", "test/fixtures", "test/e2e/testing-manifests", "cluster/addons")

# file name -> the invalid field
BROKEN = {
    "appsv1deployment-no-selectors.yaml": "spec.selector",
    "deployment-label-change3.yaml": "spec.template.metadata.labels",
    "invalid-pod.yaml": "spec.containers[0].name",
    "kube-scheduler.yaml": "spec.containers[0].volumeMounts[1].name",
    "multi-resource-3.yaml": "metadata.name",
    "pod-apply-status.yaml": "spec.containers",
    "metrics-apiservice.yaml": "spec.service",  # aggregation is not supported
    # completed by the test that uses them
    "backup-client-rbac.yaml": "subjects[0].namespace",
    "csi-controller-rbac.yaml": "subjects[0].namespace",
}


def documents(root: Path, folders: Any) -> Iterator[tuple[str, Any]]:
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".yaml", ".json"):
                yield from parsed(path)


def parsed(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        found = list(yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError):
        return  # templates, and files that are broken for parser tests
    for document in found:
        if isinstance(document, dict):
            for item in document.get("items") or [document]:
                if isinstance(item, dict) and isinstance(item.get("apiVersion"), str):
                    # As received: dates and keys of YAML become JSON strings.
                    yield path.name, json.loads(json.dumps(item, default=str))


def test_manifests_of_kubernetes_pass(kubernetes_module: Path) -> None:
    seen = 0
    faults: dict[str, set[str]] = {}
    for name, obj in documents(kubernetes_module, FOLDERS):
        if kinds.by_kind(obj["apiVersion"], obj.get("kind", "")) is None:
            continue
        defaults.apply_defaults(obj)
        seen += 1
        for error in rules.validate(obj):
            faults.setdefault(name, set()).add(error.field)
    assert seen > 300
    assert faults == {name: {field} for name, field in BROKEN.items()}


def test_volcano_examples_are_valid(volcano_module: Path) -> None:
    checkers = {}
    for crd in crds.load():
        version = crd["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]
        key = f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]
        checkers[key] = jsonschema_rs.validator_for(schema)
    seen, faults = set(), {}
    for name, obj in documents(volcano_module, ("example", "docs/design")):
        checker = checkers.get((obj["apiVersion"], obj.get("kind")))
        if checker is None:
            continue
        seen.add(obj["kind"])
        problems = [f"{list(e.instance_path)}: {e.message}" for e in checker.iter_errors(obj)]
        if problems:
            faults[name] = problems
    assert {"Job", "Queue", "JobFlow", "JobTemplate", "CronJob"} <= seen
    assert faults == {}
