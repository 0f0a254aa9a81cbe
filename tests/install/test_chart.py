"""The chart by itself: what helm renders is what `hekla install` applies, and it is safe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from tools import chart as generated

from hekla import __version__
from hekla.admission.webhooks import Reach, configurations
from hekla.api import crds
from hekla.cli import charts, installing
from hekla.cli.main import main
from hekla.scheduler import config
from hekla.scheduler.discovery import discover
from tests.install.conftest import CHART, Helm

Json = dict[str, Any]
ROOT = CHART.parents[1]
NAMESPACE = "volcano-system"
VALUES: dict[str, Json] = {
    "as shipped": {},
    "one of each, no election": {
        "custom": {
            "scheduler_replicas": 1,
            "controller_replicas": 1,
            "admission_replicas": 1,
            "leader_elect_enable": False,
        }
    },
    "only a scheduler, of another name": {
        "custom": {
            "controller_enable": False,
            "admission_enable": False,
            "aggregate_roles_enable": False,
            "scheduler_name": "other",
            "scheduler_log_level": 5,
            "scheduler_metrics_enable": False,
            "scheduler_config_override": 'actions: "allocate"\ntiers:\n- plugins: [{name: gang}]\n',
        }
    },
    "everything that is optional": {
        "basic": {"image": "example.org/hekla@sha256:0", "image_pull_secret": "pull"},
        "custom": {
            "ssh_plugin_enable": False,
            "service_monitor_enable": True,
            "service_monitor_labels": {"release": "prometheus"},
            "grafana_dashboard_enable": True,
            "enabled_controllers": "*,-gc-controller",
            "controller_worker_threads": 7,
            "common_labels": {"team": "platform"},
            "scheduler_podLabels": {"a": "b"},
            "controller_labels": {"c": "d"},
            "webhooks_namespace_selector_expressions": [
                {"key": "batch", "operator": "In", "values": ["yes"]}
            ],
            "default_tolerations": [{"key": "control", "operator": "Exists"}],
            "scheduler_affinity": {"nodeAffinity": {}},
            "admission_ns": {"disk": "ssd"},
            "admission_sc": {"runAsNonRoot": True, "runAsUser": 7},
        },
        "service": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]},
    },
}


def identity(obj: Json) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def rendered(values: Json, service: str = "hekla") -> dict[tuple[str, str, str], Json]:
    release = charts.Release("hekla", NAMESPACE, service)
    return {identity(obj): obj for obj in charts.render(CHART, release, values)}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_renders_what_hekla_install_applies(helm: Helm, tmp_path: Path, values: Json) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    words = ("--namespace", NAMESPACE, "--kube-version", "v1.36.1", "--values", file)
    done = helm("template", "hekla", CHART, *words, "--include-crds")
    assert done.returncode == 0, done.stderr
    objects = [obj for obj in yaml.load_all(done.stdout, yaml.CSafeLoader) if obj]
    by_helm = {identity(obj): obj for obj in objects}
    assert len(by_helm) == len(objects)
    definitions = {key: by_helm.pop(key) for key in list(by_helm) if key[0].startswith("CustomRes")}
    assert by_helm == rendered(values, "Helm")
    ours = installing.objects(NAMESPACE, values)
    assert {identity(obj) for obj in ours} == {
        ("Namespace", "", NAMESPACE),
        *definitions,
        *by_helm,
    }
    assert [obj for obj in ours if identity(obj) in definitions] == list(definitions.values())


def test_helm_finds_nothing_to_complain_about(helm: Helm) -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_a_value_that_the_chart_does_not_have_is_refused_by_both(helm: Helm) -> None:
    done = helm("template", CHART, "--set", "custom.colocation_enable=true")
    assert done.returncode != 0
    assert "colocation_enable" in done.stderr
    with pytest.raises(click.ClickException, match="colocation_enable"):
        installing.objects(NAMESPACE, {"custom": {"colocation_enable": True}})


def test_every_value_is_in_the_schema_and_the_reverse() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = charts.default_values(CHART)
    for part, known in values.items():
        assert set(schema[part]["properties"]) == set(known)
    assert set(schema) == {*values, "global"}


def test_a_construct_that_is_not_known_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "values.yaml").write_text("{}")
    (tmp_path / "Chart.yaml").write_text("name: x")
    for text in (
        "{{ randAlpha 3 }}",
        "{{ if true }}a{{ else if true }}b{{ end }}",
        "{{ if true }}",
    ):
        (tmp_path / "templates" / "a.yaml").write_text(text)
        with pytest.raises(charts.ChartError, match=r"a\.yaml: "):
            charts.render(tmp_path, charts.Release("a", "b"), {})


def test_the_webhooks_are_those_the_service_keeps_in_force() -> None:
    assert generated.WEBHOOKS.read_text() == generated.webhooks(), "run python -m tools.chart"
    ours = {key: obj for key, obj in rendered({}).items() if key[0].endswith("Configuration")}
    reach = Reach(namespace=NAMESPACE, service="hekla-admission-service")
    want = {identity(body): body for body in configurations(reach, b"")}
    assert ours.keys() == want.keys()
    for key, body in want.items():
        del body["webhooks"][0]["clientConfig"]["caBundle"]  # the service's part
        assert ours[key]["webhooks"] == body["webhooks"]
    (deployment,) = deployments({}, "admission")
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--service={reach.namespace}/{reach.service}" in args
    assert ("Service", NAMESPACE, reach.service) in rendered({})


def test_no_webhook_is_about_pods_or_anything_of_others() -> None:
    for key, obj in rendered({}).items():
        for webhook in obj.get("webhooks", ()) if key[0].endswith("Configuration") else ():
            for rule in webhook["rules"]:
                assert all(group.endswith(".volcano.sh") for group in rule["apiGroups"])


def deployments(values: Json, name: str = "") -> list[Json]:
    found = [obj for key, obj in rendered(values).items() if key[0] == "Deployment"]
    return [obj for obj in found if obj["metadata"]["name"].endswith(name)]


def test_every_container_runs_with_as_little_as_there_is() -> None:
    made = deployments({})
    assert len(made) == 3
    for deployment in made:
        pod = deployment["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"requests", "limits"} <= set(container["resources"])
        assert container["livenessProbe"]
        assert container["readinessProbe"]


def test_no_role_has_a_wildcard_and_only_controllers_reach_secrets_of_others() -> None:
    for (kind, _, name), obj in rendered({}).items():
        for rule in obj.get("rules", ()) if kind in ("Role", "ClusterRole") else ():
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in words, name
            if "secrets" in rule["resources"] and "resourceNames" not in rule:
                assert (kind, name) == ("ClusterRole", "hekla-controllers")
    without = rendered({"custom": {"ssh_plugin_enable": False}})
    rules = without["ClusterRole", "", "hekla-controllers"]["rules"]
    assert not [rule for rule in rules if "secrets" in rule["resources"]]


def test_the_commands_take_the_flags_that_the_chart_gives_them() -> None:
    for deployment in deployments(VALUES["everything that is optional"]):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        name, *flags = container["args"]
        command = main.commands[name]
        command.make_context(name, list(flags))


def test_the_configuration_is_the_one_that_is_in_force_without_any() -> None:
    assert (CHART / "config" / "volcano-scheduler.conf").read_text() == config.DEFAULT
    text = rendered({})["ConfigMap", NAMESPACE, "volcano-scheduler-configmap"]["data"]
    assert config.parse(text["volcano-scheduler.conf"], discover()).actions


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    dashboard = json.loads((CHART / "dashboards" / "hekla.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for text in asked for name in re.findall(r"\b(?:volcano|hekla)_\w+", text)}
    assert len(names) >= 10
    for name in names:
        assert f"`{name.removesuffix('_bucket')}`" in documented


def test_the_chart_has_the_version_of_hekla_and_the_crds_it_serves() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["appVersion"] == __version__
    served = [path for path in crds.manifests() if not path.name.startswith(installing.ELSEWHERE)]
    linked = {path.name: path.resolve() for path in (CHART / "crds").iterdir()}
    assert linked == {path.name: path.resolve() for path in served}


def test_dry_run_prints_what_would_be_applied() -> None:
    done = CliRunner().invoke(main, ["install", "--dry-run", "--image", "a:1", "-n", "elsewhere"])
    assert done.exit_code == 0, done.output
    printed = list(yaml.load_all(done.output, yaml.CSafeLoader))
    assert printed == installing.objects("elsewhere", {"basic": {"image": "a:1"}})
    assert {obj["metadata"].get("namespace", "elsewhere") for obj in printed} == {"elsewhere"}
    kinds = [obj["kind"] for obj in printed]
    assert kinds[0] == "Namespace"
    assert kinds[-1].endswith("WebhookConfiguration")


def test_values_come_from_files_and_words_and_the_last_wins(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("custom: {scheduler_replicas: 3, scheduler_name: a}")
    sets = ["custom.scheduler_name=b", "custom.leader_elect_enable=false"]
    assert installing.values_of([file], sets, "i:1") == {
        "custom": {"scheduler_replicas": 3, "scheduler_name": "b", "leader_elect_enable": False},
        "basic": {"image": "i:1"},
    }
    with pytest.raises(click.UsageError, match="NAME=VALUE"):
        installing.values_of([], ["custom"], "")
