"""Volcano's kinds that describe queues, groups, machines and data rather than a job.

The fields are those of reference/api.md section 1; the descriptions are ours.
"""

from __future__ import annotations

from tools.schemas.structural import (
    SUBDOMAIN,
    CoreTypes,
    Schema,
    boolean,
    condition,
    count,
    int32,
    int64,
    integer,
    list_of,
    map_of,
    obj,
    one_of,
    resource_list,
    string,
    strings,
    time,
)
from tools.schemas.volcano_jobs import network_topology


def command(core: CoreTypes) -> dict[str, Schema]:
    return {
        "action": string("The action, such as AbortJob."),
        "target": core.get("meta.v1.OwnerReference", "The target object."),
        "reason": string("One CamelCase word for the reason."),
        "message": string("A readable message."),
    }


def pod_group(core: CoreTypes) -> dict[str, Schema]:
    sub_group = obj(
        "Sub-gangs of the group.",
        {
            "name": string("Name of the policy.", max_length=253),
            "networkTopology": network_topology(),
            "subGroupSize": int32("Pods in each subgroup.", minimum=1, default=1),
            "minSubGroups": count(
                "Minimum number of subgroups that are scheduled together.", default=0
            ),
            "labelSelector": core.get("meta.v1.LabelSelector", "Pods of this policy."),
            "matchLabelKeys": strings(
                "Pods with equal values of these labels form one subgroup.", list_type="atomic"
            ),
        },
    )
    spec = obj(
        "The size of the gang, and its queue.",
        {
            "minMember": count("Minimum number of pods that are scheduled together."),
            "minTaskMember": map_of(int32(), "Minimum number of pods by task name."),
            "queue": string(
                "Queue of the group.",
                max_length=253,
                pattern=SUBDOMAIN,
                default="default",
            ),
            "priorityClassName": string("Priority class of the group.", max_length=253),
            "minResources": resource_list(
                "Resources that enqueue checks; without it the group is always admitted."
            ),
            "networkTopology": network_topology(),
            "subGroupPolicy": list_of(sub_group, "Sub-gangs."),
        },
    )
    fact = {
        "type": string("Unschedulable or Scheduled."),
        "status": string("True, False or Unknown."),
        "transitionID": string("The scheduling session that wrote it."),
        "lastTransitionTime": time("Time of the write."),
        "reason": string("One CamelCase word for the reason."),
        "message": string("A readable message."),
    }
    status = obj(
        "The observed state of the group.",
        {
            "phase": one_of(
                "Phase of the group.",
                "Pending",
                "Running",
                "Unknown",
                "Inqueue",
                "Completed",
            ),
            "conditions": list_of(obj("", fact), "Conditions with their times."),
            "running": count("Running pods."),
            "succeeded": count("Succeeded pods."),
            "failed": count("Failed pods."),
        },
    )
    return {"spec": spec, "status": status}


def queue(core: CoreTypes) -> dict[str, Schema]:
    def node_groups(description: str) -> Schema:
        return obj(
            description,
            {
                "requiredDuringSchedulingIgnoredDuringExecution": strings("Must."),
                "preferredDuringSchedulingIgnoredDuringExecution": strings("Should."),
            },
        )

    cluster = {
        "name": string("Name of the cluster."),
        "weight": int32("Its share of the jobs."),
        "capacity": resource_list("Its capacity."),
    }
    spec = obj(
        "Resources and policies of the queue.",
        {
            "weight": int32(
                "Weight among its siblings.",
                minimum=1,
                maximum=65535,
                default=1,
            ),
            "capability": resource_list("Upper limit of resources."),
            "reclaimable": boolean("Whether other queues may reclaim its resources."),
            "extendClusters": list_of(obj("", cluster), "Other clusters for its jobs."),
            "guarantee": obj(
                "Guaranteed resources.", {"resource": resource_list("Guaranteed amounts.")}
            ),
            "affinity": obj(
                "Node groups of its jobs.",
                {
                    "nodeGroupAffinity": node_groups("Node groups to use."),
                    "nodeGroupAntiAffinity": node_groups("Node groups to avoid."),
                },
            ),
            "type": string("Informational.", max_length=253),
            "parent": string(
                "Parent queue; the default is root.", max_length=253, pattern=SUBDOMAIN
            ),
            "deserved": resource_list("Deserved resources; usage beyond them may be reclaimed."),
            "priority": count("Queues with a higher priority come first.", default=0),
            "dequeueStrategy": one_of(
                "fifo stops at a job that does not fit, traverse looks at the next.",
                "fifo",
                "traverse",
                default="traverse",
            ),
        },
    )
    reservation = {
        "nodes": strings("Nodes reserved for the queue."),
        "resource": resource_list("Their resources."),
    }
    status = obj(
        "The observed state of the queue.",
        {
            "state": one_of(
                "State of the queue.",
                "Open",
                "Closed",
                "Closing",
                "Unknown",
            ),
            "unknown": count("PodGroups in phase Unknown."),
            "pending": count("Pending PodGroups."),
            "running": count("Running PodGroups."),
            "inqueue": count("PodGroups in phase Inqueue."),
            "completed": count("Completed PodGroups."),
            "reservation": obj("Reserved resources.", reservation),
            "allocated": resource_list("Resources allocated to its jobs."),
        },
    )
    return {"spec": spec, "status": status}


def hyper_node(core: CoreTypes) -> dict[str, Schema]:
    exact = string("Name of the node.", min_length=1, max_length=253, pattern=SUBDOMAIN)
    selector = obj(
        "Selects members; exactly one field is set.",
        {
            "exactMatch": obj("By name.", {"name": exact}, required=("name",)),
            "regexMatch": obj(
                "By a regular expression on the name.",
                {"pattern": string("The expression.", min_length=1)},
                required=("pattern",),
            ),
            "labelMatch": core.get("meta.v1.LabelSelector", "By labels; for members of type Node."),
        },
        validations=[
            {
                "message": "set one of exactMatch, regexMatch and labelMatch",
                "rule": "has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)",
            },
            {
                "message": "set only one of exactMatch, regexMatch and labelMatch",
                "rule": "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0)"
                " + (has(self.labelMatch) ? 1 : 0) <= 1",
            },
        ],
    )
    member = obj(
        "Nodes or smaller domains inside this one.",
        {"type": one_of("Kind of the members.", "Node", "HyperNode"), "selector": selector},
        required=("type",),
    )
    spec = obj(
        "A network domain.",
        {
            "tier": integer("Level in the tree; lower is closer.", minimum=0),
            "tierName": string("Name of the level.", max_length=253),
            "members": list_of(member, "Its members.", min_items=1),
        },
        required=("tier",),
    )
    status = obj(
        "The observed state.",
        {
            "conditions": list_of(condition(), "Facts."),
            "nodeCount": int64("Number of nodes.", minimum=0),
        },
    )
    return {"spec": spec, "status": status}


def numatopology(core: CoreTypes) -> dict[str, Schema]:
    allocation = obj(
        "Allocation of a container.",
        {
            "name": string("Name of the container."),
            "allocations": map_of(string(), "By resource; a list of CPUs, or an amount."),
        },
    )
    pod = obj(
        "Allocation of a pod.",
        {
            "uid": string("UID of the pod."),
            "name": string("Name of the pod."),
            "namespace": string("Namespace of the pod."),
            "containerAllocations": list_of(allocation, "Its containers."),
        },
    )
    cpu = {
        "numa": integer("NUMA node.", minimum=0),
        "socket": integer("Socket.", minimum=0),
        "core": integer("Core.", minimum=0),
    }
    resource = {
        "allocatable": string("Units free for pods, as a list such as 0-3,8."),
        "capacity": integer("Units in all."),
    }
    spec = obj(
        "NUMA topology of a node.",
        {
            "policies": map_of(string(), "Policies of the node's managers, by manager."),
            "resReserved": map_of(string(), "Reserved for the system, by resource."),
            "numares": map_of(obj("", resource), "Units by resource."),
            "cpuDetail": map_of(obj("", cpu), "Location of each CPU by its number."),
            "podAllocations": list_of(pod, "Allocations of pods."),
        },
    )
    return {"spec": spec}


def colocation_configuration(core: CoreTypes) -> dict[str, Schema]:
    def percent(description: str, default: int) -> Schema:
        return integer(description, minimum=0, maximum=100, default=default)

    memory = {
        "highRatio": percent("Percentage of the limit at which memory is throttled.", 100),
        "lowRatio": percent("Percentage of the request that is protected if possible.", 0),
        "minRatio": percent("Percentage of the request that is always protected.", 0),
    }
    spec = obj(
        "Quality-of-service settings for pods that share a node with others.",
        {
            "selector": core.get("meta.v1.LabelSelector", "Selects pods; none if not set."),
            "memoryQos": obj("Memory settings.", memory),
        },
    )
    conditions = list_of(condition(), "Facts.", list_type="map", list_map_keys=["type"])
    return {"spec": spec, "status": obj("The observed state.", {"conditions": conditions})}


def node_shard(core: CoreTypes) -> dict[str, Schema]:
    spec = obj(
        "Nodes that one scheduler should use.",
        {"nodesDesired": strings("Names of the nodes.")},
        required=("nodesDesired",),
    )
    status = obj(
        "Nodes that it does use.",
        {
            "lastUpdateTime": time("Time of the write."),
            "nodesInUse": strings("Nodes with its pods."),
            "nodesToRemove": strings("Nodes in use that are no longer desired."),
            "nodesToAdd": strings("Nodes desired that are not in use yet."),
        },
    )
    return {"spec": spec, "status": status}


def data_source(core: CoreTypes) -> dict[str, Schema]:
    locality = obj(
        "Location of the data.",
        {"clusterNames": strings("Clusters with the data.")},
        required=("clusterNames",),
    )
    spec = obj(
        "Data that jobs depend on.",
        {
            "system": string("Storage system, such as hive."),
            "type": string("Type in the system, such as table."),
            "name": string("Name in the system."),
            "locality": locality,
            "attributes": map_of(string(), "Additional attributes."),
            "reclaimPolicy": one_of(
                "What happens to this object when it has no claims.",
                "Retain",
                "Delete",
                default="Retain",
            ),
        },
        required=("system", "type", "name"),
    )
    status = obj(
        "Who uses it.",
        {
            "claimRefs": list_of(core.get("core.v1.ObjectReference", "A claim."), "Its claims."),
            "boundClaims": int32("Number of claims."),
            "conditions": list_of(condition(), "Facts."),
        },
    )
    return {"spec": spec, "status": status}


def data_source_claim(core: CoreTypes) -> dict[str, Schema]:
    workload = obj(
        "The workload that needs the data.",
        {
            "apiVersion": string("Its API version."),
            "kind": string("Its kind."),
            "name": string("Its name."),
            "namespace": string("Its namespace; the default is the claim's."),
        },
        required=("apiVersion", "kind", "name"),
    )
    spec = obj(
        "A claim of a workload on data.",
        {
            "system": string("Storage system."),
            "dataSourceType": string("Type in the system."),
            "dataSourceName": string("Name in the system."),
            "workload": workload,
            "attributes": map_of(string(), "Additional attributes."),
        },
        required=("system", "dataSourceType", "dataSourceName", "workload"),
    )
    status = obj(
        "The observed state.",
        {
            "phase": one_of("Phase of the claim.", "Pending", "Bound"),
            "boundDataSource": string("The DataSource it is bound to."),
            "conditions": list_of(condition(), "Facts."),
        },
    )
    return {"spec": spec, "status": status}
