"""Apply the values of charts/hekla to manifests that helm has rendered with its defaults.

`hekla install` needs no template engine: helm renders the chart once, when the package is built
(`python -m tools.chart`), and this module changes the rendered objects. A test compares the result
with helm's own rendering for every value.

Note: a new value or a changed template needs a change here as well; the test names the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hekla import __version__
from hekla.units import bounded_yaml
from hekla.units.objects import Object

Values = Mapping[str, Any]

RELEASE: Final = "hekla"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
COMMON_LABELS: Final = "app.kubernetes.io/"
RENDERED_WITH: Final = {
    "custom": {
        "service_monitor_enable": True,
        "grafana_dashboard_enable": True,
        "queue_access_enable": True,
    }
}
"""Values of the shipped manifests: everything optional is there, and is removed if disabled."""

_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_POLICY: Final = "ValidatingAdmissionPolicy"
_ACCOUNT: Final = re.compile(r"(system:serviceaccount:)[^:']+:")
_ACCOUNTS: Final = re.compile(r"(kube-system', 'system:serviceaccounts:)[^']+")
_SCHEDULED_HERE: Final = re.compile(r"(schedulerName\.orValue\(''\) [!=]= )'[^']*'")
_ACCESS: Final = {
    f"{RELEASE}-access-commands": "command_policy_enable",
    f"{RELEASE}-access-nodes": "node_name_policy_enable",
    f"{RELEASE}-access-queues": "queue_access_enable",
    f"{RELEASE}-access-submitters": "submitter_policy_enable",
}
_REVIEWS: Final = ("tokenreviews", "subjectaccessreviews")
_WORKER_FLAGS: Final = (
    "worker_threads",
    "worker_threads_for_cronjob",
    "worker_threads_for_gc",
    "worker_threads_for_podgroup",
    "worker_threads_for_queue",
)


class ChartError(Exception):
    """A value that the chart does not accept; the message names it."""


@dataclass(frozen=True)
class _Component:
    name: str
    """Suffix of object names, and the name of the container."""
    key: str
    """Prefix of its values."""

    @property
    def full_name(self) -> str:
        return f"{RELEASE}-{self.name}"


_COMPONENTS: Final = (
    _Component("scheduler", "scheduler"),
    _Component("controllers", "controller"),
    _Component("admission", "admission"),
)


def default_values(chart: Path) -> Object:
    """Return the chart's values.yaml."""
    values: Object = bounded_yaml.load((chart / "values.yaml").read_text(), bounded_yaml.CONFIG)
    return values


def check_values(chart: Path, values: Values) -> None:
    """Raise ChartError for an unknown value or a wrong type, as helm does."""
    import jsonschema_rs

    schema = json.loads((chart / "values.schema.json").read_text())
    for error in jsonschema_rs.validator_for(schema).iter_errors(dict(values)):
        path = ".".join(map(str, error.instance_path)) or "values"
        raise ChartError(f"{path}: {error.message}; see {chart / 'values.yaml'}")


def merged(base: Values, overrides: Values) -> Object:
    """Merge values as helm does: maps are merged, everything else is replaced."""
    result = dict(base)
    for key, value in overrides.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


def configure(
    manifests: Iterable[Object],
    chart: Path,
    namespace: str,
    values: Values,
    *,
    managed_by: str = "hekla",
) -> list[Object]:
    """Return the objects of a release, as helm renders them with these values."""
    values = merged(default_values(chart), values)
    objects = [deepcopy(obj) for obj in manifests if _is_enabled(obj, values)]
    for obj in objects:
        _set_namespace(obj, namespace)
        obj["metadata"]["labels"][MANAGED_BY] = managed_by
        _add_labels(obj["metadata"], values)
        _set_kind_specifics(obj, values, chart)
    return objects


def _is_enabled(obj: Object, values: Values) -> bool:
    """Return whether the values include this object in the release."""
    custom, kind, name = values["custom"], obj["kind"], obj["metadata"]["name"]
    if kind == "ServiceMonitor":
        return bool(custom["service_monitor_enable"])
    if name == f"{RELEASE}-dashboard":
        return bool(custom["grafana_dashboard_enable"])
    if name in (f"{RELEASE}-edit", f"{RELEASE}-view"):
        return bool(custom["aggregate_roles_enable"])
    if name == f"{RELEASE}-metrics-reader":
        return bool(custom["metrics_secure_enable"])
    if name in _ACCESS:
        return bool(custom[_ACCESS[name]])
    component = _component_of(name)
    if not custom[f"{component.key}_enable"]:
        return False
    if kind.startswith(_POLICY):
        which = "pod" if component.name == "admission" else component.key
        return bool(custom[f"{which}_policy_enable"])
    if kind == "NetworkPolicy":
        return bool(custom["network_policy_enable"])
    if kind == "PodDisruptionBudget":
        return int(custom[f"{component.key}_replicas"] or 0) > 1
    if kind == "Service" and component.name != "admission":
        return bool(custom[f"{component.key}_metrics_enable"])
    return True


def _component_of(name: str) -> _Component:
    for component in _COMPONENTS:
        if name.startswith(component.full_name):
            return component
    return _COMPONENTS[0]  # the scheduler's ConfigMap, which keeps Volcano's name


def _set_namespace(obj: Object, namespace: str) -> None:
    if "namespace" in obj["metadata"]:
        obj["metadata"]["namespace"] = namespace
    for subject in obj.get("subjects", ()):
        subject["namespace"] = namespace
    if obj["kind"] in _WEBHOOKS:
        for webhook in obj["webhooks"]:
            webhook["clientConfig"]["service"]["namespace"] = namespace
    if obj["kind"] == _POLICY:
        for condition in obj["spec"].get("matchConditions", ()):
            expression = _ACCOUNT.sub(rf"\g<1>{namespace}:", condition["expression"])
            condition["expression"] = _ACCOUNTS.sub(rf"\g<1>{namespace}", expression)
    if obj["kind"] == "Deployment":
        args = _container(obj)["args"]
        for flag in ("--scheduler-conf-namespace", "--leader-elect-resource-namespace"):
            _replace_flag(args, flag, namespace)
        service = f"{RELEASE}-admission-service"
        _replace_flag(args, "--service", f"{namespace}/{service}")


def _add_labels(metadata: Object, values: Values, own: Values | None = None) -> None:
    """Add common labels after the chart's common ones, and an object's own labels last."""
    labels = metadata["labels"]
    shared = {key: label for key, label in labels.items() if key.startswith(COMMON_LABELS)}
    common = values["custom"]["common_labels"] or {}
    metadata["labels"] = {**shared, **common, **_without(labels, shared), **(own or {})}


def _without(labels: Values, keys: Iterable[str]) -> Object:
    return {key: value for key, value in labels.items() if key not in keys}


def _set_kind_specifics(obj: Object, values: Values, chart: Path) -> None:
    custom = values["custom"]
    match obj["kind"]:
        case "Deployment":
            _set_deployment(obj, values)
        case "Role" | "ClusterRole":
            _set_rules(obj, custom)
        case "Service":
            _set_service(obj, values)
        case "NetworkPolicy":
            _set_network_policy(obj, custom)
        case "ServiceMonitor":
            obj["metadata"]["labels"] |= custom["service_monitor_labels"] or {}
            if not custom["metrics_secure_enable"]:
                (endpoint,) = obj["spec"]["endpoints"]
                for field in ("scheme", "bearerTokenFile", "tlsConfig"):
                    del endpoint[field]
        case "ConfigMap" if obj["metadata"]["name"] == f"{RELEASE}-dashboard":
            default = default_values(chart)["custom"]["grafana_dashboard_labels"]
            labels = _without(obj["metadata"]["labels"], default)
            obj["metadata"]["labels"] = labels | (custom["grafana_dashboard_labels"] or {})
        case "ConfigMap":
            obj["data"]["volcano-scheduler.conf"] = _scheduler_config(values, chart)
        case kind if kind == _POLICY:
            if obj["metadata"]["name"] == f"{RELEASE}-admission-pods":
                _set_pod_policy(obj["spec"], custom)
            elif obj["metadata"]["name"] in _ACCESS:
                _set_scheduler(obj["spec"], custom["scheduler_name"])
        case kind if kind in _WEBHOOKS:
            expressions = custom["webhooks_namespace_selector_expressions"]
            for webhook in obj["webhooks"] if expressions else ():
                webhook["namespaceSelector"] = {"matchExpressions": expressions}


def _scheduler_config(values: Values, chart: Path) -> str:
    text: str = values["custom"]["scheduler_config_override"]
    if not text:
        path = (chart / values["basic"]["scheduler_config_file"]).resolve()
        if not path.is_relative_to(chart.resolve()):
            raise ChartError(
                f"basic.scheduler_config_file: {path} is outside of the chart; "
                "use custom.scheduler_config_override"
            )
        text = path.read_text() if path.is_file() else ""
    # A YAML block scalar ends with exactly one line break.
    return text.rstrip("\n") + "\n" if text else ""


def _set_rules(role: Object, custom: Values) -> None:
    rules = role["rules"]
    if role["metadata"]["name"] == f"{RELEASE}-metrics-reader":
        return
    if not custom["leader_elect_enable"]:
        rules = [rule for rule in rules if "leases" not in rule["resources"]]
    name = role["metadata"]["name"]
    if name == f"{RELEASE}-edit" and not custom["command_policy_enable"]:
        rules = [rule for rule in rules if "commands" not in rule["resources"]]
    for rule in rules:
        if "leases" in rule["resources"] and "resourceNames" in rule and name.endswith("scheduler"):
            rule["resourceNames"] = [custom["scheduler_name"]]
    if name.endswith("controllers") and not custom["ssh_plugin_enable"]:
        rules = [rule for rule in rules if "secrets" not in rule["resources"]]
    key = _component_of(name).key
    if not custom["metrics_secure_enable"] or not custom.get(f"{key}_metrics_enable"):
        rules = [rule for rule in rules if rule["resources"][0] not in _REVIEWS]
    role["rules"] = rules


def _set_service(service: Object, values: Values) -> None:
    for field in ("ipFamilyPolicy", "ipFamilies"):
        if values["service"][field]:
            service["spec"][field] = values["service"][field]
    if not values["custom"]["metrics_secure_enable"]:
        service["metadata"].get("annotations", {}).pop("prometheus.io/scheme", None)


def _set_network_policy(policy: Object, custom: Values) -> None:
    key = _component_of(policy["metadata"]["name"]).key
    if key == "admission":
        return
    if not custom[f"{key}_metrics_enable"]:
        del policy["spec"]["ingress"]
    elif custom["network_policy_metrics_from"]:
        policy["spec"]["ingress"][0]["from"] = custom["network_policy_metrics_from"]


def _set_pod_policy(spec: Object, custom: Values) -> None:
    """Set the pods that the policy checks: those of this scheduler, in the chosen namespaces."""
    (condition,) = spec["matchConditions"]
    before, _, _ = condition["expression"].partition(" == ")
    condition["expression"] = f"{before} == '{custom['scheduler_name']}'"
    expressions = custom["webhooks_namespace_selector_expressions"]
    if expressions:
        spec["matchConstraints"]["namespaceSelector"] = {"matchExpressions": expressions}


def _set_scheduler(spec: Object, scheduler: str) -> None:
    for field in ("matchConditions", "variables"):
        for each in spec.get(field, ()):
            each["expression"] = _SCHEDULED_HERE.sub(rf"\g<1>'{scheduler}'", each["expression"])


def _set_deployment(deployment: Object, values: Values) -> None:
    custom, spec = values["custom"], deployment["spec"]
    component = _component_of(deployment["metadata"]["name"])
    key = component.key
    deployment["metadata"]["labels"] |= custom[f"{key}_labels"] or {}
    spec["replicas"] = custom[f"{key}_replicas"]
    template = spec["template"]
    template["metadata"]["labels"][MANAGED_BY] = deployment["metadata"]["labels"][MANAGED_BY]
    _add_labels(template["metadata"], values, custom[f"{key}_podLabels"])
    _set_pod(template["spec"], values, key)
    container = _container(deployment)
    _set_container(container, values, key)
    if component.name == "admission":
        port = values["basic"]["admission_port"]
        _replace_flag(container["args"], "--port", port)
        container["ports"][0]["containerPort"] = port
        _set_client_ca(template["spec"], custom["admission_client_ca_configmap"])
    else:
        _set_flags(container, custom, key)
    if key == "controller" and custom["controller_history_enable"]:
        _set_history(spec, custom)


def _set_history(spec: Object, custom: Values) -> None:
    """Give the controllers a history file, in the pod or on a claim."""
    if not (custom["controller_metrics_enable"] and custom["metrics_secure_enable"]):
        raise ChartError(
            "custom.controller_history_enable needs controller_metrics_enable and "
            "metrics_secure_enable: records are served with the metrics, to tokens"
        )
    claim, pod = custom["controller_history_claim"], spec["template"]["spec"]
    volume: Object = {"name": "history", "emptyDir": {}}
    if claim:
        if custom["controller_replicas"] > 1:
            raise ChartError(
                "custom.controller_history_claim needs controller_replicas=1: "
                "SQLite files are not shared"
            )
        volume = {"name": "history", "persistentVolumeClaim": {"claimName": claim}}
        spec["strategy"] = {"type": "Recreate"}  # two pods cannot have the volume
    (container,) = pod["containers"]
    first_shared = container["args"].index(
        f"--leader-elect={str(custom['leader_elect_enable']).lower()}"
    )
    container["args"].insert(first_shared, "--history-file=/var/lib/hekla/history.db")
    container["volumeMounts"] = [{"name": "history", "mountPath": "/var/lib/hekla"}]
    pod["volumes"] = [volume]


def _set_client_ca(pod: Object, config_map: str) -> None:
    if not config_map:
        return
    (container,) = pod["containers"]
    container["args"].append("--client-ca-file=/etc/hekla/client-ca/ca.crt")
    mount = {"name": "client-ca", "mountPath": "/etc/hekla/client-ca", "readOnly": True}
    container["volumeMounts"].append(mount)
    pod["volumes"].append({"name": "client-ca", "configMap": {"name": config_map}})


def _set_pod(pod: Object, values: Values, key: str) -> None:
    custom, pull_secret = values["custom"], values["basic"]["image_pull_secret"]
    if pull_secret:
        pod["imagePullSecrets"] = [{"name": pull_secret}]
    pod["securityContext"] = custom[f"{key}_sc"] or custom["default_sc"]
    for field, suffix in (
        ("affinity", "affinity"),
        ("tolerations", "tolerations"),
        ("nodeSelector", "ns"),
    ):
        value = custom[f"{key}_{suffix}"] or custom[f"default_{suffix}"]
        if value:
            pod[field] = value


def _set_container(container: Object, values: Values, key: str) -> None:
    basic, custom = values["basic"], values["custom"]
    tag = basic["image_tag_version"] or __version__
    version = f"@{basic['image_digest']}" if basic["image_digest"] else f":{tag}"
    image = f"{basic['image_registry']}/{basic['image_name']}{version}"
    container["image"] = basic["image"] or image
    container["imagePullPolicy"] = basic["image_pull_policy"]
    container["securityContext"] = custom[f"{key}_main_csc"] or custom["default_csc"]
    container["resources"] = custom[f"{key}_resources"]


def _set_flags(container: Object, custom: Values, key: str) -> None:
    """Set the flags and ports of the scheduler or the controllers."""
    args: list[str] = container["args"]
    _replace_flag(args, "--scheduler-name", custom["scheduler_name"])
    _replace_flag(args, "--controllers", custom["enabled_controllers"])
    _replace_flag(args, "--leader-elect", str(custom["leader_elect_enable"]).lower())
    _replace_flag(args, "--kube-api-qps", custom[f"{key}_kube_api_qps"])
    _replace_flag(args, "--kube-api-burst", custom[f"{key}_kube_api_burst"])
    if key == "controller":
        values = {name: custom[f"controller_{name}"] for name in _WORKER_FLAGS}
        args[2:2] = [f"--{_dashed(name)}={value}" for name, value in values.items() if value]
    if not custom[f"{key}_metrics_enable"]:
        metrics = ("--enable-metrics", "--listen-address=", "--metrics-secure")
        args[:] = [arg for arg in args if not arg.startswith(metrics)]
        container["ports"] = [port for port in container["ports"] if port["name"] != "metrics"]
    elif not custom["metrics_secure_enable"]:
        args.remove("--metrics-secure")
    if custom[f"{key}_log_level"]:
        args.append(f"-v={custom[f'{key}_log_level']}")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _replace_flag(args: list[str], flag: str, value: object) -> None:
    """Replace the value of a flag where it is given."""
    for index, arg in enumerate(args):
        if arg.startswith(f"{flag}="):
            args[index] = f"{flag}={value}"


def _container(deployment: Object) -> Object:
    container: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return container
