"""datadependency.volcano.sh/v1alpha1: DataSource and DataSourceClaim.

Volcano has no CRD for these; a multi-cluster add-on has. Ours follow the published types.
"""

from __future__ import annotations

from msgspec import field

from hekla.api.meta import Condition, Model, Object, ObjectReference


class Locality(Model):
    cluster_names: tuple[str, ...] = ()


class DataSourceSpec(Model):
    system: str = ""
    type: str = ""
    name: str = ""
    locality: Locality | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    reclaim_policy: str = "Retain"


class DataSourceStatus(Model):
    claim_refs: tuple[ObjectReference, ...] = ()
    bound_claims: int = 0
    conditions: tuple[Condition, ...] = ()


class DataSource(Object):
    spec: DataSourceSpec = field(default_factory=DataSourceSpec)
    status: DataSourceStatus = field(default_factory=DataSourceStatus)


class WorkloadReference(Model):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


class DataSourceClaimSpec(Model):
    system: str = ""
    data_source_type: str = ""
    data_source_name: str = ""
    workload: WorkloadReference = field(default_factory=WorkloadReference)
    attributes: dict[str, str] = field(default_factory=dict)


class DataSourceClaimStatus(Model):
    phase: str = ""
    bound_data_source: str = ""
    conditions: tuple[Condition, ...] = ()


class DataSourceClaim(Object):
    spec: DataSourceClaimSpec = field(default_factory=DataSourceClaimSpec)
    status: DataSourceClaimStatus = field(default_factory=DataSourceClaimStatus)
