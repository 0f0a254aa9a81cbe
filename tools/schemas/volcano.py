"""The catalogue of Volcano's CRDs: names, scope and columns of each, around the schemas.

DataSource, DataSourceClaim and HyperJob ship no CRD upstream (an add-on brings them); ours follow
the published types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tools.schemas import volcano_cluster, volcano_jobs
from tools.schemas.structural import CoreTypes, Schema, obj, string

MODULE = "volcano.sh/volcano"
VERSION = "v1.14.1"  # the newest the module registry serves; the reference describes 1.15


@dataclass(frozen=True)
class Crd:
    group: str
    version: str
    kind: str
    plural: str
    fields: Callable[[CoreTypes], dict[str, Schema]]
    description: str
    short_names: tuple[str, ...] = ()
    scope: str = "Namespaced"
    # None: no such key. An empty dict is what PodGroup has, and it means "no status" as well.
    subresources: dict[str, Any] | None = None
    columns: tuple[dict[str, Any], ...] = ()
    required: tuple[str, ...] = ()


def column(name: str, path: str, type: str = "string", **more: Any) -> dict[str, Any]:
    return {"jsonPath": path, "name": name, "type": type, **more}


def age(name: str = "AGE") -> dict[str, Any]:
    return column(name, ".metadata.creationTimestamp", "date")


STATUS: dict[str, Any] = {"status": {}}

CATALOGUE = (
    Crd(
        "batch.volcano.sh",
        "v1alpha1",
        "Job",
        "jobs",
        volcano_jobs.job,
        "Tasks that are scheduled together, with policies for failures.",
        short_names=("vcjob", "vj"),
        subresources=STATUS,
        columns=(
            column("STATUS", ".status.state.phase"),
            column("minAvailable", ".status.minAvailable", "integer"),
            column("RUNNINGS", ".status.running", "integer"),
            age(),
            column("QUEUE", ".spec.queue", priority=1),
        ),
    ),
    Crd(
        "batch.volcano.sh",
        "v1alpha1",
        "CronJob",
        "cronjobs",
        volcano_jobs.cron_job,
        "Starts jobs on a schedule.",
        short_names=("cronvcjob", "cronvj"),
        subresources=STATUS,
    ),
    Crd(
        "bus.volcano.sh",
        "v1alpha1",
        "Command",
        "commands",
        volcano_cluster.command,
        "Requests an action on a job or queue; the controller deletes it when handled.",
    ),
    Crd(
        "config.volcano.sh",
        "v1alpha1",
        "ColocationConfiguration",
        "colocationconfigurations",
        volcano_cluster.colocation_configuration,
        "Settings for pods that share nodes with online services.",
        subresources=STATUS,
        required=("spec",),
    ),
    Crd(
        "datadependency.volcano.sh",
        "v1alpha1",
        "DataSource",
        "datasources",
        volcano_cluster.data_source,
        "A data set and the clusters that contain it.",
        scope="Cluster",
        subresources=STATUS,
    ),
    Crd(
        "datadependency.volcano.sh",
        "v1alpha1",
        "DataSourceClaim",
        "datasourceclaims",
        volcano_cluster.data_source_claim,
        "A workload's claim on a data set.",
        subresources=STATUS,
    ),
    Crd(
        "flow.volcano.sh",
        "v1alpha1",
        "JobFlow",
        "jobflows",
        volcano_jobs.job_flow,
        "Jobs with dependencies.",
        short_names=("jf",),
        subresources=STATUS,
        columns=(column("Status", ".status.state.phase"), age("Age")),
    ),
    Crd(
        "flow.volcano.sh",
        "v1alpha1",
        "JobTemplate",
        "jobtemplates",
        volcano_jobs.job_template,
        "A job template for flows.",
        short_names=("jt",),
        subresources=STATUS,
    ),
    Crd(
        "nodeinfo.volcano.sh",
        "v1alpha1",
        "Numatopology",
        "numatopologies",
        volcano_cluster.numatopology,
        "NUMA layout of the node of the same name.",
        short_names=("numatopo",),
        scope="Cluster",
    ),
    Crd(
        "scheduling.volcano.sh",
        "v1beta1",
        "PodGroup",
        "podgroups",
        volcano_cluster.pod_group,
        "A gang: pods that are scheduled together or not at all.",
        short_names=("pg", "podgroup-v1beta1"),
        subresources={},
        columns=(
            column("STATUS", ".status.phase"),
            column("minMember", ".spec.minMember", "integer"),
            column("RUNNINGS", ".status.running", "integer"),
            age(),
            column("QUEUE", ".spec.queue", priority=1),
        ),
    ),
    Crd(
        "scheduling.volcano.sh",
        "v1beta1",
        "Queue",
        "queues",
        volcano_cluster.queue,
        "A share of the cluster for jobs.",
        short_names=("q", "queue-v1beta1"),
        scope="Cluster",
        subresources=STATUS,
        columns=(column("PARENT", ".spec.parent"),),
    ),
    Crd(
        "shard.volcano.sh",
        "v1alpha1",
        "NodeShard",
        "nodeshards",
        volcano_cluster.node_shard,
        "The nodes of the scheduler of the same name.",
        short_names=("nsh",),
        scope="Cluster",
        subresources=STATUS,
        columns=(age(),),
        required=("spec",),
    ),
    Crd(
        "topology.volcano.sh",
        "v1alpha1",
        "HyperNode",
        "hypernodes",
        volcano_cluster.hyper_node,
        "A network domain, such as the nodes of one switch.",
        short_names=("hn",),
        scope="Cluster",
        subresources=STATUS,
        columns=(
            column("Tier", ".spec.tier"),
            column("TierName", ".spec.tierName"),
            column("NodeCount", ".status.nodeCount", "integer"),
            age("Age"),
        ),
    ),
    Crd(
        "training.volcano.sh",
        "v1alpha1",
        "HyperJob",
        "hyperjobs",
        volcano_jobs.hyper_job,
        "Related jobs in one or several clusters.",
        short_names=("hyperjob", "hj"),
        subresources=STATUS,
    ),
)


def crds(definitions: dict[str, Schema]) -> dict[str, dict[str, Any]]:
    """Every CRD object by file name, `group_plural`."""
    core = CoreTypes(definitions)
    return {f"{crd.group}_{crd.plural}": _manifest(crd, core) for crd in CATALOGUE}


def _manifest(crd: Crd, core: CoreTypes) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": crd.kind,
        "listKind": f"{crd.kind}List",
        "plural": crd.plural,
        "singular": crd.kind.lower(),
    }
    if crd.short_names:
        names["shortNames"] = list(crd.short_names)
    version: dict[str, Any] = {
        "name": crd.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(crd, core)},
    }
    if crd.columns:
        version["additionalPrinterColumns"] = list(crd.columns)
    if crd.subresources is not None:
        version["subresources"] = crd.subresources
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{crd.plural}.{crd.group}",
            # Uninstalling the chart must not delete jobs.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": crd.group,
            "names": names,
            "scope": crd.scope,
            "versions": [version],
        },
    }


def _root(crd: Crd, core: CoreTypes) -> Schema:
    fields = {
        "apiVersion": string("API version of the object."),
        "kind": string("The kind of the object."),
        "metadata": {"type": "object"},
        **crd.fields(core),
    }
    return obj(crd.description, fields, required=crd.required)
