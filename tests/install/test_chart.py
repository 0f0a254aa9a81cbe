"""The Helm chart: `hekla install` applies what helm renders, and the objects are safe."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner
from tools import chart as generator
from tools.kube.gobuild import ensure
from tools.kube.parts import HELM

from hekla import __version__
from hekla.admission.webhooks import WebhookAddress, configurations
from hekla.api import crds
from hekla.cli import chart_values, release
from hekla.cli.main import main
from hekla.scheduler.framework import config
from hekla.scheduler.plugins.discovery import discover
from hekla.units.objects import Object
from tests.install.conftest import CHART, Helm

ROOT = CHART.parents[1]
NAMESPACE = "volcano-system"
VALUES: dict[str, Object] = {
    "as shipped": {},
    "one of each, no election": {
        "custom": {
            "scheduler_replicas": 1,
            "controller_replicas": 1,
            "admission_replicas": 1,
            "leader_elect_enable": False,
            "metrics_secure_enable": False,
            "service_monitor_enable": True,
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
    "run_all that is optional": {
        "basic": {"image": "example.org/hekla@sha256:0", "image_pull_secret": "pull"},
        "custom": {
            "ssh_plugin_enable": False,
            "service_monitor_enable": True,
            "service_monitor_labels": {"release": "prometheus"},
            "grafana_dashboard_enable": True,
            "enabled_controllers": "*,-gc-controller",
            "controller_worker_threads": 7,
            "scheduler_log_level": 4,
            "controller_log_level": 5,
            "common_labels": {"team": "platform"},
            "scheduler_podLabels": {"a": "b"},
            "network_policy_metrics_from": [{"namespaceSelector": {}}],
            "controller_labels": {"c": "d"},
            "webhooks_namespace_selector_expressions": [
                {"key": "batch", "operator": "In", "values": ["yes"]}
            ],
            "default_tolerations": [{"key": "control", "operator": "Exists"}],
            "scheduler_affinity": {"nodeAffinity": {}},
            "admission_ns": {"disk": "ssd"},
            "admission_client_ca_configmap": "api-server-ca",
            "admission_sc": {"runAsNonRoot": True, "runAsUser": 7},
            "controller_history_enable": True,
            "controller_history_claim": "history",
            "controller_replicas": 1,
        },
        "service": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]},
    },
}


SAMPLES: Object = {
    "image_pull_policy": "Always",
    "admission_port": 9443,
    "image_digest": "sha256:" + 64 * "0",
    "enabled_controllers": "*,-gc-controller",
    "scheduler_config_file": "dashboards/hekla.json",
    "ipFamilyPolicy": "PreferDualStack",
    "ipFamilies": ["IPv6"],
}
"""Values whose type does not suggest another valid one."""


def another(name: str, default: object) -> object:
    """Return a valid value that differs from the default."""
    if name in SAMPLES:
        return SAMPLES[name]
    match default:
        case bool():
            return not default
        case int():
            return default + 1
        case None:
            return 7
        case str():
            return "other"
        case list():
            return [{"key": "a", "operator": "Exists"}]
        case _:
            return {"a": "b"}


def single_values() -> dict[str, Object]:
    """Return one set of values for each value of the chart, with only that value changed."""
    defaults = chart_values.default_values(CHART)
    return {
        f"{part}.{name}": {part: {name: another(name, default)}}
        for part, values in defaults.items()
        for name, default in values.items()
    }


def identity(obj: Object) -> tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace", ""), meta["name"]


def rendered(values: Object, managed_by: str = "hekla") -> dict[tuple[str, str, str], Object]:
    manifests = release.manifests()
    objects = chart_values.configure(manifests, CHART, NAMESPACE, values, managed_by=managed_by)
    return {identity(obj): obj for obj in objects}


def helm_rendered(
    values: Object, *, include_crds: bool = False
) -> dict[tuple[str, str, str], Object]:
    text = generator.helm_template(ensure(HELM), values, include_crds=include_crds)
    objects = [obj for obj in yaml.load_all(text, yaml.CSafeLoader) if obj]
    by_identity = {identity(obj): obj for obj in objects}
    assert len(by_identity) == len(objects)
    return by_identity


@pytest.mark.usefixtures("helm")
@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_install_applies_what_helm_renders(values: Object) -> None:
    by_helm = helm_rendered(values, include_crds=True)
    definitions = {key: by_helm.pop(key) for key in list(by_helm) if key[0].startswith("CustomRes")}
    assert by_helm == rendered(values, "Helm")
    ours = release.objects(NAMESPACE, values)
    assert {identity(obj) for obj in ours} == {
        ("Namespace", "", NAMESPACE),
        *definitions,
        *by_helm,
    }
    assert [obj for obj in ours if identity(obj) in definitions] == list(definitions.values())


@pytest.mark.usefixtures("helm")
def test_every_single_value_has_the_effect_it_has_in_helm() -> None:
    defaults = rendered({}, "Helm")
    differing = []
    for name, values in single_values().items():
        chart_values.check_values(CHART, values)
        ours = rendered(values, "Helm")
        if ours != helm_rendered(values):
            differing.append(name)
        # These have an effect only if what they belong to is enabled.
        alone = name in (
            "custom.service_monitor_labels",
            "custom.grafana_dashboard_labels",
            "custom.controller_history_claim",
        )
        assert (ours == defaults) == alone, name
    assert differing == []


@pytest.mark.usefixtures("helm")
def test_shipped_manifests_are_what_helm_renders_now() -> None:
    assert generator.manifests(ensure(HELM)) == release.MANIFESTS.read_text(), (
        "run python -m tools.chart"
    )


def test_shipped_manifests_have_the_current_version() -> None:
    versions = {
        obj["metadata"]["labels"]["app.kubernetes.io/version"] for obj in release.manifests()
    }
    assert versions == {__version__}


def test_helm_lint_passes(helm: Helm) -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout


def test_helm_and_install_reject_an_unknown_value(helm: Helm) -> None:
    done = helm("template", CHART, "--set", "custom.colocation_enable=true")
    assert done.returncode != 0
    assert "colocation_enable" in done.stderr
    with pytest.raises(click.ClickException, match="colocation_enable"):
        release.objects(NAMESPACE, {"custom": {"colocation_enable": True}})


def test_schema_and_values_have_the_same_names() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]
    values = chart_values.default_values(CHART)
    for part, known in values.items():
        assert set(schema[part]["properties"]) == set(known)
    assert set(schema) == {*values, "global"}


def test_webhook_configurations_match_those_of_the_admission_service() -> None:
    assert generator.WEBHOOKS.read_text() == generator.webhooks(), "run python -m tools.chart"
    ours = {key: obj for key, obj in rendered({}).items() if key[0].endswith("Configuration")}
    address = WebhookAddress(namespace=NAMESPACE, service="hekla-admission-service")
    want = {identity(body): body for body in configurations(address, b"")}
    assert ours.keys() == want.keys()
    for key, body in want.items():
        del body["webhooks"][0]["clientConfig"]["caBundle"]  # set by the service
        assert ours[key]["webhooks"] == body["webhooks"]
    (deployment,) = deployments({}, "admission")
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--service={address.namespace}/{address.service}" in args
    assert ("Service", NAMESPACE, address.service) in rendered({})


def test_webhooks_select_only_volcano_kinds() -> None:
    for key, obj in rendered({}).items():
        for webhook in obj.get("webhooks", ()) if key[0].endswith("Configuration") else ():
            for rule in webhook["rules"]:
                assert all(group.endswith(".volcano.sh") for group in rule["apiGroups"])


def deployments(values: Object, name: str = "") -> list[Object]:
    found = [obj for key, obj in rendered(values).items() if key[0] == "Deployment"]
    return [obj for obj in found if obj["metadata"]["name"].endswith(name)]


def test_containers_pass_the_restricted_pod_security_standard() -> None:
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


def test_no_role_has_a_wildcard_or_reads_all_secrets() -> None:
    for (kind, _, name), obj in rendered({}).items():
        for rule in obj.get("rules", ()) if kind in ("Role", "ClusterRole") else ():
            words = [word for listed in rule.values() for word in listed]
            assert "*" not in words, name
            if "secrets" in rule.get("resources", ()) and "resourceNames" not in rule:
                assert (kind, name) == ("ClusterRole", "hekla-controllers")
                assert not {"get", "list", "watch"} & set(rule["verbs"])
    without = rendered({"custom": {"ssh_plugin_enable": False}})
    rules = without["ClusterRole", "", "hekla-controllers"]["rules"]
    assert not [rule for rule in rules if "secrets" in rule["resources"]]


def test_pods_accept_connections_on_their_own_ports_only() -> None:
    policies = {
        key[2]: obj["spec"] for key, obj in rendered({}).items() if key[0] == "NetworkPolicy"
    }
    for deployment in deployments({}):
        name = deployment["metadata"]["name"]
        policy = policies.pop(name)
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        assert policy["podSelector"]["matchLabels"].items() <= labels.items()
        assert policy["policyTypes"] == ["Ingress"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        served = {port["name"] for port in container["ports"]} - {"health"}
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == served
    assert not policies
    closed = rendered({"custom": {"scheduler_metrics_enable": False}})
    assert "ingress" not in closed["NetworkPolicy", NAMESPACE, "hekla-scheduler"]["spec"]


def test_image_is_pinned_by_its_digest() -> None:
    digest = "sha256:" + 64 * "a"
    for deployment in deployments({"basic": {"image_digest": digest}}):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"localhost/hekla@{digest}"
    with pytest.raises(chart_values.ChartError, match="image_digest"):
        chart_values.check_values(CHART, {"basic": {"image_digest": "latest"}})


def test_commands_accept_the_flags_of_the_chart() -> None:
    for deployment in deployments(VALUES["run_all that is optional"]):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        name, *flags = container["args"]
        command = main.commands[name]
        command.make_context(name, [flag for flag in flags if not flag.startswith("--client-ca")])


def test_shipped_configuration_is_the_default_configuration() -> None:
    assert (CHART / "config" / "volcano-scheduler.conf").read_text() == config.DEFAULT
    text = rendered({})["ConfigMap", NAMESPACE, "volcano-scheduler-configmap"]["data"]
    assert config.parse(text["volcano-scheduler.conf"], discover()).actions


def test_dashboard_queries_documented_metrics() -> None:
    documented = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    dashboard = json.loads((CHART / "dashboards" / "hekla.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for text in asked for name in re.findall(r"\b(?:volcano|hekla)_\w+", text)}
    assert len(names) >= 10
    for name in names:
        assert f"`{name.removesuffix('_bucket')}`" in documented


def test_chart_has_the_version_and_the_crds_of_hekla() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert about["version"] == about["appVersion"] == __version__
    written = {path.name: path.read_text() for path in (CHART / "crds").iterdir()}
    assert written == generator.served_crds(), "run python -m tools.chart"
    names = {crd["metadata"]["name"] for text in written.values() for crd in [yaml.safe_load(text)]}
    served = [crd for crd in crds.load() if crd["spec"]["group"] not in release.NOT_SERVED]
    assert names == {crd["metadata"]["name"] for crd in served}


def test_chart_has_no_symbolic_links() -> None:
    """helm warns about each one, and packages of the chart would contain copies anyway."""
    assert [path for path in CHART.rglob("*") if path.is_symlink()] == []


def test_install_without_an_image_is_refused_before_anything_is_sent() -> None:
    done = CliRunner().invoke(main, ["install", "--kubeconfig", "/nonexistent"])
    assert done.exit_code == 1
    assert f"the default localhost/hekla:{__version__} is in no registry" in done.output
    assert f"hekla install --image registry.example.org/hekla:{__version__}" in done.output


IMAGES = {
    "of a flag": ["--image", "a:1"],
    "a registry": ["--set", "basic.image_registry=registry.example.org"],
    "the default, if it is named": ["--set", "basic.image_registry=localhost"],
}


@pytest.mark.parametrize("case", IMAGES)
def test_install_with_an_image_goes_on(case: str) -> None:
    words = ["install", "--kubeconfig", "/nonexistent", *IMAGES[case]]
    assert "is in no registry" not in CliRunner().invoke(main, words).output


def test_dry_run_prints_the_objects() -> None:
    done = CliRunner().invoke(main, ["install", "--dry-run", "--image", "a:1", "-n", "elsewhere"])
    assert done.exit_code == 0, done.output
    printed = list(yaml.load_all(done.output, yaml.CSafeLoader))
    assert printed == release.objects("elsewhere", {"basic": {"image": "a:1"}})
    assert {obj["metadata"].get("namespace", "elsewhere") for obj in printed} == {"elsewhere"}
    kinds = [obj["kind"] for obj in printed]
    assert kinds[0] == "Namespace"
    assert kinds[-1].endswith("WebhookConfiguration")


def test_values_merge_files_then_sets_then_image(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("custom: {scheduler_replicas: 3, scheduler_name: a}")
    sets = ["custom.scheduler_name=b", "custom.leader_elect_enable=false"]
    assert release.values_from([file], sets, "i:1") == {
        "custom": {"scheduler_replicas": 3, "scheduler_name": "b", "leader_elect_enable": False},
        "basic": {"image": "i:1"},
    }
    with pytest.raises(click.UsageError, match="NAME=VALUE"):
        release.values_from([], ["custom"], "")


REFUSED_HISTORY: dict[str, Object] = {
    "plain metrics": {"controller_history_enable": True, "metrics_secure_enable": False},
    "no metrics": {"controller_history_enable": True, "controller_metrics_enable": False},
    "a claim for two": {"controller_history_enable": True, "controller_history_claim": "history"},
}


@pytest.mark.parametrize("custom", REFUSED_HISTORY.values(), ids=REFUSED_HISTORY)
def test_history_that_cannot_work_is_refused_by_install_and_by_helm(custom: Object) -> None:
    with pytest.raises(chart_values.ChartError, match="controller_history"):
        rendered({"custom": custom})
    with pytest.raises(SystemExit, match="controller_history"):
        helm_rendered({"custom": custom})
