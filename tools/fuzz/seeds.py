"""Valid inputs to mutate."""

from __future__ import annotations

import json
from typing import Any

from hekla.units.objects import Object


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "p",
        "namespace": "default",
        "labels": {"app": "web"},
        "annotations": {"a": "b"},
    },
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "host",
                "command": ["true"],
                "env": [{"name": "A", "value": "1"}],
                "ports": [{"containerPort": 80, "name": "http"}],
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                    ]
                }
            }
        },
    },
}
DEPLOYMENT: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "namespace": "default"},
    "spec": {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1},
        },
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "image": "host"}]},
        },
    },
}
JOB: Object = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j", "namespace": "default"},
    "spec": {
        "suspend": True,
        "completions": 3,
        "parallelism": 2,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 1,
        "template": {
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}
        },
    },
}
VOLCANO_JOB: Object = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "metadata": {"name": "v", "namespace": "default"},
    "spec": {
        "minAvailable": 1,
        "queue": "default",
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "plugins": {"svc": [], "env": []},
        "tasks": [
            {
                "name": "w",
                "replicas": 1,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "main", "image": "host"}],
                    }
                },
            }
        ],
    },
}
OTHERS: tuple[Object, ...] = (
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {
            "selector": {"app": "web"},
            "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "default"},
        "data": {"a": "b"},
    },
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default"},
        "data": {"a": "Yg=="},
    },
    {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "other"},
        "spec": {"hard": {"pods": "10", "requests.cpu": "4"}},
    },
    {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "l", "namespace": "other"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "R",
        "type": "Normal",
        "firstTimestamp": "2026-01-01T00:00:00Z",
    },
    {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "schedule": "*/5 * * * *",
            "timeZone": "Etc/UTC",
            "suspend": True,
            "jobTemplate": {"spec": JOB["spec"]},
        },
    },
    {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {**DEPLOYMENT["spec"], "strategy": None, "serviceName": "s"},
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}},
    },
    {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "default"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "r", "namespace": "default"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    },
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.fuzz.example.com"},
        "spec": {
            "group": "fuzz.example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "A", "type": "string", "jsonPath": ".spec.a"}
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "properties": {"a": {"type": "integer", "minimum": 1}},
                                    "x-kubernetes-validations": [{"rule": "self.a > 0"}],
                                }
                            },
                        }
                    },
                }
            ],
        },
    },
)
OBJECTS: tuple[Object, ...] = (POD, DEPLOYMENT, JOB, VOLCANO_JOB, *OTHERS)
PATCHES: tuple[Any, ...] = (
    [
        {"op": "add", "path": "/metadata/labels/x", "value": "y"},
        {"op": "test", "path": "/kind", "value": "Pod"},
    ],
    [
        {"op": "move", "from": "/spec/volumes/0", "path": "/spec/volumes/-"},
        {"op": "remove", "path": "/spec/volumes/0"},
    ],
    [{"op": "copy", "from": "/spec/containers", "path": "/spec/initContainers"}],
    {"metadata": {"labels": {"x": None, "y": "z"}}, "spec": {"activeDeadlineSeconds": 5}},
    {
        "spec": {
            "containers": [{"name": "main", "image": "x"}, {"name": "gone", "$patch": "delete"}],
            "$setElementOrder/containers": [{"name": "main"}],
            "$retainKeys": ["containers"],
        }
    },
    {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]},
        "spec": {"$patch": "replace", "containers": []},
    },
)
TEXTS: tuple[str, ...] = (
    "app=web,tier!=db,env in (a, b),x notin (y),z,!w,n>5",
    "metadata.name=p,status.phase!=Running",
    "100m",
    "1.5Gi",
    "2e3",
    "-0.000000001",
    "12E",
    "2026-01-02T03:04:05.678901+02:00",
    "1h30m0.5s",
    "*/5 1-3,7 * JAN MON-FRI",
    "@every 1h",
    "@yearly",
    "{.spec.containers[?(@.name=='a')].image}",
    "self.all(x, x.a > 0 && x.name.matches('^a+$')) || has(self.b)",
    "size(self) < 10 ? 'a' : string(1u)",
    "eyJydiI6IDEyLCAic3RhcnQiOiAiYSJ9",
    "12345",
    "/api/v1/namespaces/default/pods/p/log?follow=true&tailLines=5",
    "/apis/batch.volcano.sh/v1alpha1/jobs?watch=1&resourceVersion=0&allowWatchBookmarks=true",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.5",
    "\n\t\x12\x04spec\x1a\x02{}",
)
