"""Table rows of all kinds except pods, as `kubectl get -o wide` shows them."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import kinds
from hekla.apiserver.schema.kinds import Registry, Served
from hekla.apiserver.tables import PRINTERS, Tables, printer_for
from hekla.units.clock import ManualClock
from hekla.units.objects import Object
from hekla.units.timestamps import format_time

NOW = 1_000_000.0
REGISTRY = Registry()

TEMPLATE: Object = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:2"}],
        "nodeSelector": {"disk": "ssd"},
    },
}
SELECTOR: Object = {"matchLabels": {"app": "web"}}


def ago(seconds: float) -> str:
    return format_time(NOW - seconds)


def made(name: str = "x", **fields: Any) -> Object:
    metadata = {"name": name, "creationTimestamp": ago(300), **fields.pop("metadata", {})}
    return {"metadata": metadata, **fields}


def job(conditions: tuple[str, ...] = (), *, metadata: Object | None = None, **more: Any) -> Object:
    status = more.pop("status", {})
    states = [{"type": kind, "status": "True"} for kind in conditions]
    return made(
        spec={"template": TEMPLATE, "completions": 3, **more},
        status={"conditions": states, **status},
        metadata=metadata or {},
    )


# sentence: (storage name, object, cells after the name)
CASES: dict[str, tuple[str, Object, list[Any]]] = {
    "a namespace": ("namespaces", made(status={"phase": "Active"}), ["Active", "5m"]),
    "a node that is ready": (
        "nodes",
        made(
            metadata={"labels": {"node-role.kubernetes.io/gpu": "", "kubernetes.io/role": "big"}},
            status={
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {
                    "kubeletVersion": "v1.36.0",
                    "osImage": "Debian",
                    "kernelVersion": "6.1",
                    "architecture": "amd64",
                    "containerRuntimeVersion": "hekla://1",
                },
            },
        ),
        ["Ready", "big,gpu", "5m", "v1.36.0", "10.0.0.1", "<none>", "Debian", "6.1 (amd64)",
         "hekla://1"],
    ),
    "a node that is cordoned and not ready": (
        "nodes",
        made(
            spec={"unschedulable": True},
            status={"conditions": [{"type": "Ready", "status": "Unknown"}]},
        ),
        ["NotReady,SchedulingDisabled", "<none>", "5m", "", "<none>", "<none>", "<unknown>",
         "<unknown>", "<unknown>"],
    ),
    "a node without status": (
        "nodes", made(),
        ["Unknown", "<none>", "5m", "", "<none>", "<none>", *["<unknown>"] * 3],
    ),
    "a service inside the cluster": (
        "services",
        made(
            spec={
                "type": "ClusterIP",
                "clusterIPs": ["10.96.0.1"],
                "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}],
                "selector": {"b": "2", "a": "1"},
            }
        ),
        ["ClusterIP", "10.96.0.1", "<none>", "80/TCP,53/UDP", "5m", "a=1,b=2"],
    ),
    "a headless service without ports": (
        "services", made(spec={"type": "ClusterIP", "clusterIP": "None"}),
        ["ClusterIP", "None", "<none>", "<none>", "5m", "<none>"],
    ),
    "a load balancer that has no address yet": (
        "services",
        made(spec={"type": "LoadBalancer", "ports": [{"port": 80, "nodePort": 30001}]}),
        ["LoadBalancer", "<none>", "<pending>", "80:30001/TCP", "5m", "<none>"],
    ),
    "a load balancer with addresses": (
        "services",
        made(
            spec={"type": "LoadBalancer", "externalIPs": ["9.9.9.9"]},
            status={"loadBalancer": {"ingress": [{"hostname": "b.example"}, {"ip": "1.2.3.4"}]}},
        ),
        ["LoadBalancer", "<none>", "1.2.3.4,b.example,9.9.9.9", "<none>", "5m", "<none>"],
    ),
    "an external name": (
        "services", made(spec={"type": "ExternalName", "externalName": "db.example"}),
        ["ExternalName", "<none>", "db.example", "<none>", "5m", "<none>"],
    ),
    "endpoints, the fourth only counted": (
        "endpoints",
        made(
            subsets=[
                {
                    "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                    "ports": [{"port": 80}, {"port": 81}],
                }
            ]
        ),
        ["10.0.0.1:80,[fd00::1]:80,10.0.0.1:81 + 1 more...", "5m"],
    ),
    "endpoints without any": ("endpoints", made(), ["<none>", "5m"]),
    "an endpoint slice": (
        "discovery.k8s.io/endpointslices",
        made(
            addressType="IPv4",
            ports=[{"port": 80}, {"name": "any"}],
            endpoints=[{"addresses": [f"10.0.0.{n}"]} for n in range(5)],
        ),
        ["IPv4", "80,any", "10.0.0.0,10.0.0.1,10.0.0.2 + 2 more...", "5m"],
    ),
    "an empty endpoint slice": (
        "discovery.k8s.io/endpointslices", made(addressType="IPv6"),
        ["IPv6", "<unset>", "<unset>", "5m"],
    ),
    "a config map": (
        "configmaps", made(data={"a": "1", "b": "2"}, binaryData={"c": ""}), [3, "5m"],
    ),
    "a secret": ("secrets", made(type="Opaque", data={"a": ""}), ["Opaque", 1, "5m"]),
    "a service account": ("serviceaccounts", made(), ["5m"]),
    "a quota": (
        "resourcequotas",
        made(
            status={
                "hard": {"requests.cpu": "2", "pods": "10", "limits.memory": "1024Mi"},
                "used": {"requests.cpu": "500m", "limits.memory": "512Mi"},
            }
        ),
        ["pods: 0/10, requests.cpu: 500m/2", "limits.memory: 512Mi/1Gi", "5m"],
    ),
    "a pending claim": (
        "persistentvolumeclaims",
        made(spec={"storageClassName": "fast", "volumeMode": "Block"}, status={"phase": "Pending"}),
        ["Pending", "", "", "", "fast", "<unset>", "5m", "Block"],
    ),
    "a bound claim": (
        "persistentvolumeclaims",
        made(
            spec={"volumeName": "v"},
            status={
                "phase": "Bound",
                "capacity": {"storage": "1024Mi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            },
        ),
        ["Bound", "v", "1Gi", "RWO,RWX", "", "<unset>", "5m", "<unset>"],
    ),
    "a claim that is being deleted": (
        "persistentvolumeclaims", made(metadata={"deletionTimestamp": ago(0)}),
        ["Terminating", "", "", "", "", "<unset>", "5m", "<unset>"],
    ),
    "a volume": (
        "persistentvolumes",
        made(
            spec={
                "capacity": {"storage": "5Gi"},
                "accessModes": ["ReadWriteOncePod"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "ns", "name": "c"},
                "storageClassName": "fast",
                "volumeMode": "Filesystem",
            },
            status={"phase": "Bound"},
        ),
        ["5Gi", "RWOP", "Retain", "Bound", "ns/c", "fast", "<unset>", "", "5m", "Filesystem"],
    ),
    "a deployment": (
        "apps/deployments",
        made(
            spec={"replicas": 3, "template": TEMPLATE, "selector": SELECTOR},
            status={"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1},
        ),
        ["2/3", 3, 1, "5m", "a,b", "a:1,b:2", "app=web"],
    ),
    "a replica set": (
        "apps/replicasets",
        made(
            kind="ReplicaSet",
            spec={"replicas": 3, "template": TEMPLATE, "selector": SELECTOR},
            status={"replicas": 2, "readyReplicas": 1},
        ),
        [3, 2, 1, "5m", "a,b", "a:1,b:2", "app=web"],
    ),
    "a replication controller": (
        "replicationcontrollers",
        made(
            kind="ReplicationController",
            spec={"replicas": 1, "template": TEMPLATE, "selector": {"app": "web"}},
        ),
        [1, 0, 0, "5m", "a,b", "a:1,b:2", "app=web"],
    ),
    "a stateful set": (
        "apps/statefulsets", made(spec={"replicas": 2, "template": TEMPLATE}),
        ["0/2", "5m", "a,b", "a:1,b:2"],
    ),
    "a daemon set": (
        "apps/daemonsets",
        made(
            spec={"template": TEMPLATE, "selector": SELECTOR},
            status={"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3,
                    "updatedNumberScheduled": 2, "numberAvailable": 1},
        ),
        [5, 4, 3, 2, 1, "disk=ssd", "5m", "a,b", "a:1,b:2", "app=web"],
    ),
    "a controller revision": (
        "apps/controllerrevisions",
        made(
            revision=7,
            metadata={
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db",
                     "controller": True}
                ]
            },
        ),
        ["statefulset.apps/db", 7, "5m"],
    ),
    "a job that runs": (
        "batch/jobs", job(selector=SELECTOR, status={"succeeded": 1, "startTime": ago(150)}),
        ["Running", "1/3", "2m30s", "5m", "a,b", "a:1,b:2", "app=web"],
    ),
    "a job that is done": (
        "batch/jobs",
        job(("SuccessCriteriaMet", "Complete"),
            status={"succeeded": 3, "startTime": ago(150), "completionTime": ago(140)}),
        ["Complete", "3/3", "10s", "5m", "a,b", "a:1,b:2", "<none>"],
    ),
    "a job that failed and is being deleted": (
        "batch/jobs", job(("Failed",), metadata={"deletionTimestamp": ago(0)}),
        ["Failed", "0/3", "", "5m", "a,b", "a:1,b:2", "<none>"],
    ),
    "a job that is being deleted": (
        "batch/jobs", job(("Suspended",), metadata={"deletionTimestamp": ago(0)}),
        ["Terminating", "0/3", "", "5m", "a,b", "a:1,b:2", "<none>"],
    ),
    "a job that is suspended": (
        "batch/jobs", job(("Suspended",)),
        ["Suspended", "0/3", "", "5m", "a,b", "a:1,b:2", "<none>"],
    ),
    "a job that ends with its first success": (
        "batch/jobs", job(completions=None, parallelism=4),
        ["Running", "0/1 of 4", "", "5m", "a,b", "a:1,b:2", "<none>"],
    ),
    "a cron job": (
        "batch/cronjobs",
        made(
            spec={"schedule": "*/5 * * * *", "suspend": False,
                  "jobTemplate": {"spec": {"template": TEMPLATE}}},
            status={"active": [{}, {}], "lastScheduleTime": ago(60)},
        ),
        ["*/5 * * * *", "<none>", "False", 2, "60s", "5m", "a,b", "a:1,b:2", "<none>"],
    ),
    "a cron job in its own time zone that never ran": (
        "batch/cronjobs", made(spec={"schedule": "@daily", "timeZone": "Europe/Oslo",
                                     "suspend": True}),
        ["@daily", "Europe/Oslo", "True", 0, "<none>", "5m", "", "", "<none>"],
    ),
    "a pod template": ("podtemplates", made(template=TEMPLATE), ["a,b", "a:1,b:2", "app=web"]),
    "a budget by percentage": (
        "policy/poddisruptionbudgets",
        made(spec={"maxUnavailable": "10%"}, status={"disruptionsAllowed": 2}),
        ["N/A", "10%", 2, "5m"],
    ),
    "a lease": (
        "coordination.k8s.io/leases", made(spec={"holderIdentity": "me"}), ["me", "5m"],
    ),
    "a priority class": (
        "scheduling.k8s.io/priorityclasses",
        made(value=1000, globalDefault=True, preemptionPolicy="Never"),
        [1000, True, "5m", "Never"],
    ),
    "a role shows its creation time": (
        "rbac.authorization.k8s.io/roles", made(), [ago(300)],
    ),
    "a limit range shows its creation time": ("limitranges", made(), [ago(300)]),
    "a role binding": (
        "rbac.authorization.k8s.io/rolebindings",
        made(
            roleRef={"kind": "Role", "name": "reader"},
            subjects=[
                {"kind": "User", "name": "ann"},
                {"kind": "User", "name": "bob"},
                {"kind": "Group", "name": "devs"},
                {"kind": "ServiceAccount", "namespace": "ns", "name": "bot"},
            ],
        ),
        ["Role/reader", "5m", "ann, bob", "devs", "ns/bot"],
    ),
    "a storage class": (
        "storage.k8s.io/storageclasses",
        made(provisioner="p", volumeBindingMode="WaitForFirstConsumer"),
        ["p", "Delete", "WaitForFirstConsumer", False, "5m"],
    ),
    "a storage driver on a node": (
        "storage.k8s.io/csinodes", made(spec={"drivers": [{}, {}]}), [2, "5m"],
    ),
    "a storage driver": (
        "storage.k8s.io/csidrivers",
        made(spec={"attachRequired": False, "tokenRequests": [{"audience": "a"}],
                   "volumeLifecycleModes": ["Persistent", "Ephemeral"]}),
        [False, False, False, "a", False, "Persistent,Ephemeral", "5m"],
    ),
    "a volume attachment": (
        "storage.k8s.io/volumeattachments",
        made(spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
             status={"attached": True}),
        ["d", "v", "n", True, "5m"],
    ),
    "a network policy for every pod": (
        "networking.k8s.io/networkpolicies", made(spec={"podSelector": {}}), ["<none>", "5m"],
    ),
    "a network policy for some": (
        "networking.k8s.io/networkpolicies", made(spec={"podSelector": SELECTOR}),
        ["app=web", "5m"],
    ),
    "an ingress": (
        "networking.k8s.io/ingresses",
        made(
            spec={"ingressClassName": "nginx", "tls": [{}],
                  "rules": [{"host": f"h{n}.example"} for n in range(5)]},
            status={"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
        ),
        ["nginx", "h0.example,h1.example,h2.example + 2 more...", "1.2.3.4", "80, 443", "5m"],
    ),
    "an ingress for any host": (
        "networking.k8s.io/ingresses", made(spec={"rules": [{}]}), ["<none>", "*", "", "80", "5m"],
    ),
    "a runtime class": ("node.k8s.io/runtimeclasses", made(handler="kata"), ["kata", "5m"]),
    "webhooks": (
        "admissionregistration.k8s.io/mutatingwebhookconfigurations", made(webhooks=[{}, {}]),
        [2, "5m"],
    ),
    "an admission policy": (
        "admissionregistration.k8s.io/validatingadmissionpolicies",
        made(spec={"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
        [1, "v1/ConfigMap", "5m"],
    ),
    "an admission policy's binding": (
        "admissionregistration.k8s.io/validatingadmissionpolicybindings",
        made(spec={"policyName": "p", "paramRef": {"name": "c"}}),
        ["p", "*/c", "5m"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_row_of_a_kind(case: str) -> None:
    storage, obj, want_cells = CASES[case]
    assert PRINTERS[storage].cells(obj, NOW) == ["x", *want_cells]


def test_the_default_storage_class_is_marked_by_its_name() -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    obj = made(metadata={"annotations": annotations})
    assert PRINTERS["storage.k8s.io/storageclasses"].cells(obj, NOW)[0] == "x (default)"


EVENT = {
    "type": "Warning",
    "reason": "Unschedulable",
    "message": " no room\n",
    "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
    "source": {"component": "hekla", "host": "n1"},
    "firstTimestamp": ago(600),
    "lastTimestamp": ago(60),
    "count": 4,
}
EVENTS: dict[str, tuple[Object, list[Any]]] = {
    "an old-style event": (
        made("e", **EVENT),
        ["60s", "Warning", "Unschedulable", "pod/p", "spec", "hekla, n1", "no room", "10m", 4, "e"],
    ),
    "a single new-style event": (
        made("e", eventTime=ago(30), involvedObject={"kind": "Node"}, reportingComponent="agent"),
        ["30s", "", "", "node", "", "agent", "", "30s", 1, "e"],
    ),
    "a series": (
        made("e", eventTime=ago(90), series={"count": 7, "lastObservedTime": ago(5)}),
        ["5s", "", "", "", "", "", "", "90s", 7, "e"],
    ),
    "an event read through events.k8s.io": (
        made("e", regarding={"kind": "Pod", "name": "p"}, note="hi", eventTime=ago(1)),
        ["1s", "", "", "pod/p", "", "", "hi", "1s", 1, "e"],
    ),
}


@pytest.mark.parametrize("case", EVENTS)
def test_row_of_an_event(case: str) -> None:
    event, want_cells = EVENTS[case]
    assert PRINTERS["events"].cells(event, NOW) == want_cells


STORED = [kind for kind in kinds.BUILTIN if not kind.virtual]


@pytest.mark.parametrize("kind", STORED, ids=lambda kind: kind.group_resource)
def test_every_built_in_kind_has_columns_for_a_minimal_object(
    kind: kinds.Kind,
) -> None:
    storage = f"{kind.group}/{kind.plural}" if kind.group else kind.plural
    printer = PRINTERS[storage]
    assert len(printer.cells({"metadata": {"name": "x"}}, NOW)) == len(printer.columns)
    assert all(column.description for column in printer.columns)


def test_no_column_belongs_to_a_kind_that_is_not_served() -> None:
    known = {f"{kind.group}/{kind.plural}".lstrip("/") for kind in STORED}
    assert set(PRINTERS) <= known


def custom(columns: list[Object]) -> Served:
    kind = kinds.Kind("example.com", "v1", "Thing", "things", "thing")
    return Served(kind, "example.com/things", custom=True, columns=columns)


def test_a_custom_kind_without_columns_shows_name_and_age() -> None:
    printer = printer_for(custom([]))
    assert [column.name for column in printer.columns] == ["Name", "Age"]
    assert printer.cells(made(), NOW) == ["x", "5m"]


# sentence: (type, value of .v, cell)
TYPES: dict[str, tuple[str, Any, Any]] = {
    "text": ("string", "a", "a"),
    "a number as text": ("string", 3, "3"),
    "a boolean as text": ("string", True, "true"),
    "an object as text is JSON": ("string", {"a": [1]}, '{"a":[1]}'),
    "a whole number": ("integer", 3, 3),
    "a fraction in a column of whole numbers": ("integer", 3.9, 3),
    "text in a column of whole numbers": ("integer", "3", None),
    "a boolean in a column of whole numbers": ("integer", True, None),
    "a number": ("number", 3, 3.0),
    "a boolean": ("boolean", False, False),
    "text in a column of booleans": ("boolean", "false", None),
    "a date is an age": ("date", ago(60), "60s"),
    "a value that is not a date": ("date", "soon", "<invalid>"),
    "null": ("string", None, None),
}


@pytest.mark.parametrize("case", TYPES)
def test_a_custom_columns_type_decides_how_a_value_is_shown(case: str) -> None:
    kind, value, want_cell = TYPES[case]
    printer = printer_for(custom([{"name": "V", "type": kind, "jsonPath": ".v"}]))
    shown = printer.cells(made(v=value), NOW)[1]
    assert shown == want_cell
    assert type(shown) is type(want_cell)


def test_custom_columns_keep_their_priority_and_a_bad_path_empties_only_its_cell() -> None:
    served = custom(
        [
            {"name": "Bad", "type": "string", "jsonPath": ".a["},
            {"name": "All", "type": "string", "jsonPath": ".v[*]", "priority": 1},
            {"name": "Missing", "type": "string", "jsonPath": ".w", "description": "gone"},
        ]
    )
    printer = printer_for(served)
    assert printer.cells(made(v=["first", "second"]), NOW) == ["x", None, "first", None]
    assert [column.priority for column in printer.columns] == [0, 0, 1, 0]
    assert printer.columns[3].description == "gone"


def pods_table(include: str) -> Object:
    served = REGISTRY.lookup("", "v1", "pods")
    assert served is not None
    pod = made(spec={"containers": []}, status={"phase": "Succeeded"})
    return Tables(ManualClock(NOW)).table(served, [pod], {"resourceVersion": "5"}, include)


def test_table_has_columns_and_the_requested_part_of_the_object() -> None:
    table = pods_table("Metadata")
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": "5"}
    first = table["columnDefinitions"][0]
    assert {**first, "description": ""} == {
        "name": "Name", "type": "string", "format": "name", "description": "", "priority": 0,
    }  # fmt: skip
    row = table["rows"][0]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "x"
    assert row["conditions"][0]["type"] == "Completed"
    assert pods_table("None")["rows"][0]["object"] is None
    assert pods_table("Object")["rows"][0]["object"]["status"] == {"phase": "Succeeded"}
