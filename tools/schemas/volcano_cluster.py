"""Volcano's kinds that describe queues, groups, machines and data rather than a job.

Shapes are those of reference/api.md section 1; the sentences are ours.
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
        "action": string("What to do, for example AbortJob."),
        "target": core.get("meta.v1.OwnerReference", "The object to do it to."),
        "reason": string("One word for why."),
        "message": string("Why, for people."),
    }


def pod_group(core: CoreTypes) -> dict[str, Schema]:
    sub_group = obj(
        "A second level of gangs inside the group.",
        {
            "name": string("Name of the policy.", max_length=253),
            "networkTopology": network_topology(),
            "subGroupSize": int32("Pods in each subgroup.", minimum=1, default=1),
            "minSubGroups": count("Subgroups that must be placed together.", default=0),
            "labelSelector": core.get("meta.v1.LabelSelector", "Pods that this policy is about."),
            "matchLabelKeys": strings(
                "Pods that agree on these labels form one subgroup.", list_type="atomic"
            ),
        },
    )
    spec = obj(
        "What must be placed together, and where it waits.",
        {
            "minMember": count("Pods that must be able to run together before any starts."),
            "minTaskMember": map_of(int32(), "The same for each task, by name."),
            "queue": string(
                "Queue that the group waits in.",
                max_length=253,
                pattern=SUBDOMAIN,
                default="default",
            ),
            "priorityClassName": string("Priority class of the group.", max_length=253),
            "minResources": resource_list(
                "Resources that must be free to let it in; always let in if left out."
            ),
            "networkTopology": network_topology(),
            "subGroupPolicy": list_of(sub_group, "Gangs inside the gang."),
        },
    )
    fact = {
        "type": string("Unschedulable or Scheduled."),
        "status": string("True, False or Unknown."),
        "transitionID": string("The scheduling session that wrote it."),
        "lastTransitionTime": time("When it was written."),
        "reason": string("One word for why."),
        "message": string("Why, for people."),
    }
    status = obj(
        "What the scheduler has decided.",
        {
            "phase": one_of(
                "Where the group is in its life.",
                "Pending",
                "Running",
                "Unknown",
                "Inqueue",
                "Completed",
            ),
            "conditions": list_of(obj("", fact), "Facts, with the time they were written."),
            "running": count("Pods that run."),
            "succeeded": count("Pods that ended well."),
            "failed": count("Pods that ended badly."),
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
        "capacity": resource_list("What it offers."),
    }
    spec = obj(
        "What the queue may use and how it is shared.",
        {
            "weight": int32(
                "Share of the cluster relative to its siblings.",
                minimum=1,
                maximum=65535,
                default=1,
            ),
            "capability": resource_list("Never use more than this."),
            "reclaimable": boolean("Whether other queues may take back what it borrowed."),
            "extendClusters": list_of(obj("", cluster), "Other clusters that may take its jobs."),
            "guarantee": obj(
                "What is kept free for it.", {"resource": resource_list("Amounts kept free.")}
            ),
            "affinity": obj(
                "Groups of nodes that its jobs use.",
                {
                    "nodeGroupAffinity": node_groups("Node groups to use."),
                    "nodeGroupAntiAffinity": node_groups("Node groups to stay off."),
                },
            ),
            "type": string("For information.", max_length=253),
            "parent": string(
                "Queue above this one; root if left out.", max_length=253, pattern=SUBDOMAIN
            ),
            "deserved": resource_list("Its fair share; what goes beyond may be taken back."),
            "priority": count("Queues with a higher number go first.", default=0),
            "dequeueStrategy": one_of(
                "fifo stops at a job that does not fit, traverse looks at the next.",
                "fifo",
                "traverse",
                default="traverse",
            ),
        },
    )
    reservation = {
        "nodes": strings("Nodes kept for the queue."),
        "resource": resource_list("What they offer."),
    }
    status = obj(
        "What the queue does.",
        {
            "state": one_of(
                "Whether it takes jobs.",
                "Open",
                "Closed",
                "Closing",
                "Unknown",
            ),
            "unknown": count("Groups of unknown phase."),
            "pending": count("Groups that wait to be let in."),
            "running": count("Groups that run."),
            "inqueue": count("Groups let in and waiting for a place."),
            "completed": count("Groups that are done."),
            "reservation": obj("What is set aside.", reservation),
            "allocated": resource_list("What its jobs use now."),
        },
    )
    return {"spec": spec, "status": status}


def hyper_node(core: CoreTypes) -> dict[str, Schema]:
    exact = string("Name of the node.", min_length=1, max_length=253, pattern=SUBDOMAIN)
    selector = obj(
        "Which nodes; exactly one of these ways.",
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
        {"type": one_of("What the selector picks.", "Node", "HyperNode"), "selector": selector},
        required=("type",),
    )
    spec = obj(
        "A part of the network within which nodes are close to each other.",
        {
            "tier": integer("Level in the tree; lower is closer.", minimum=0),
            "tierName": string("Name of the level.", max_length=253),
            "members": list_of(member, "What it contains.", min_items=1),
        },
        required=("tier",),
    )
    status = obj(
        "What is known about it.",
        {
            "conditions": list_of(condition(), "Facts."),
            "nodeCount": int64("Nodes it contains.", minimum=0),
        },
    )
    return {"spec": spec, "status": status}


def numatopology(core: CoreTypes) -> dict[str, Schema]:
    allocation = obj(
        "What one container was given.",
        {
            "name": string("Name of the container."),
            "allocations": map_of(string(), "By resource; a list of CPUs, or an amount."),
        },
    )
    pod = obj(
        "What one pod was given.",
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
        "How CPUs and memory of one node lie together.",
        {
            "policies": map_of(string(), "Policies of the node's managers, by manager."),
            "resReserved": map_of(string(), "Kept for the system, by resource."),
            "numares": map_of(obj("", resource), "Units by resource."),
            "cpuDetail": map_of(obj("", cpu), "Where each CPU sits, by its number."),
            "podAllocations": list_of(pod, "What pods were given."),
        },
    )
    return {"spec": spec}


def colocation_configuration(core: CoreTypes) -> dict[str, Schema]:
    def percent(description: str, default: int) -> Schema:
        return integer(description, minimum=0, maximum=100, default=default)

    memory = {
        "highRatio": percent("Percentage of the limit at which memory is throttled.", 100),
        "lowRatio": percent("Percentage of the request kept if it can be.", 0),
        "minRatio": percent("Percentage of the request kept in any case.", 0),
    }
    spec = obj(
        "Quality-of-service settings for pods that share a node with others.",
        {
            "selector": core.get("meta.v1.LabelSelector", "Pods this is about; none if left out."),
            "memoryQos": obj("Memory settings.", memory),
        },
    )
    conditions = list_of(condition(), "Facts.", list_type="map", list_map_keys=["type"])
    return {"spec": spec, "status": obj("What is known.", {"conditions": conditions})}


def node_shard(core: CoreTypes) -> dict[str, Schema]:
    spec = obj(
        "Nodes that one scheduler should use.",
        {"nodesDesired": strings("Names of the nodes.")},
        required=("nodesDesired",),
    )
    status = obj(
        "Nodes that it does use.",
        {
            "lastUpdateTime": time("When this was written."),
            "nodesInUse": strings("Nodes with its pods."),
            "nodesToRemove": strings("Nodes in use that are no longer desired."),
            "nodesToAdd": strings("Nodes desired that are not in use yet."),
        },
    )
    return {"spec": spec, "status": status}


def data_source(core: CoreTypes) -> dict[str, Schema]:
    locality = obj(
        "Where the data is.",
        {"clusterNames": strings("Clusters that hold it.")},
        required=("clusterNames",),
    )
    spec = obj(
        "Data that jobs depend on.",
        {
            "system": string("System that holds it, for example hive."),
            "type": string("What it is there, for example table."),
            "name": string("Its name there."),
            "locality": locality,
            "attributes": map_of(string(), "More about it."),
            "reclaimPolicy": one_of(
                "What becomes of this object when no claim is left.",
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
            "boundClaims": int32("How many claims."),
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
            "namespace": string("Its namespace; the claim's if left out."),
        },
        required=("apiVersion", "kind", "name"),
    )
    spec = obj(
        "Says that a workload needs some data.",
        {
            "system": string("System that holds the data."),
            "dataSourceType": string("What it is there."),
            "dataSourceName": string("Its name there."),
            "workload": workload,
            "attributes": map_of(string(), "More about it."),
        },
        required=("system", "dataSourceType", "dataSourceName", "workload"),
    )
    status = obj(
        "Whether the data was found.",
        {
            "phase": one_of("Where the claim is in its life.", "Pending", "Bound"),
            "boundDataSource": string("The DataSource it is bound to."),
            "conditions": list_of(condition(), "Facts."),
        },
    )
    return {"spec": spec, "status": status}
