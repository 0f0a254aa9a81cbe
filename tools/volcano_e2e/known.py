"""Cases of Volcano's suites that fail against hekla, each with its reason."""

_QUEUES = "admission: Queue Validating E2E Test Should reject queue creation with "
_FLOWS = "admission: JobFlow Validating E2E Test Should allow jobflow creation with "

_HELP = "vcctl: Test Help option of vcctl cli "
_OWN_HELP = "help texts have their own words and name more commands and flags; docs/decisions/0006"
_VOLUMES = "schedulingbase: Volume Binding Test "
_AFFINITY = _VOLUMES + "StatefulSet with pod affinity [Slow] should use volumes "
_NO_EXEC = (
    "makes a directory on the node by a command in a pod; on simulated nodes no container runs"
)
_NO_MOUNT = (
    "expects a kubelet to refuse a volume without a directory; simulated nodes mount nothing"
)
_NO_PROVISIONER = "needs the storage class `standard` of a kind cluster, and its provisioner"

KNOWN: dict[str, str] = {
    _FLOWS + "duplicate flow names": (
        "two flows of one name would be the same job; docs/decisions/0004"
    ),
    _FLOWS + "multiple flows having same dependency target": (
        "its manifest names one flow twice; docs/decisions/0004"
    ),
    _QUEUES + "only guarantee resource (deserved required)": (
        "a guarantee is compared with `deserved` only if that is set; docs/decisions/0004"
    ),
    _QUEUES + "deserved resource type not in capability": (
        "a resource that is absent from `capability` is unlimited; docs/decisions/0004"
    ),
    _QUEUES + "guarantee resource type not in capability": (
        "a resource that is absent from `capability` is unlimited; docs/decisions/0004"
    ),
    _HELP + "Command: vcctl --help": _OWN_HELP,
    _HELP + "Command: vcctl job --help": _OWN_HELP,
    _HELP + "Command: vcctl job list --help": _OWN_HELP,
    _HELP + "Command: vcctl job suspend -n {$JobName} --help": _OWN_HELP,
    _HELP + "vcctl job resume -n {$JobName} --help": _OWN_HELP,
    _HELP + "vcctl job run --help": _OWN_HELP,
    "stress: [Stress] Pod Group Test [Sequential] with specific number of stress"
    " should create multiple pod groups successfully": (
        "it waits for PodGroups without pods to be Running; they stay Inqueue; docs/decisions/0005"
    ),
    _VOLUMES + "[Volume type: dir] One pod requesting one prebound PVC should"
    " be able to mount volume and read from pod1": _NO_EXEC,
    _VOLUMES + "[Volume type: dir] One pod requesting one prebound PVC should"
    " be able to mount volume and write from pod1": _NO_EXEC,
    _VOLUMES + "[Volume type: dir] Two pods mounting a local volume at the same time should"
    " be able to write from pod1 and read from pod2": _NO_EXEC,
    _VOLUMES + "[Volume type: dir] Two pods mounting a local volume one after the other should"
    " be able to write from pod1 and read from pod2": _NO_EXEC,
    _VOLUMES + "Local volume that cannot be mounted [Slow] should fail due to wrong node": _NO_EXEC,
    _VOLUMES + "Pod with node different from PV's NodeAffinity should"
    " fail scheduling due to different NodeAffinity": _NO_EXEC,
    _VOLUMES + "Pod with node different from PV's NodeAffinity should"
    " fail scheduling due to different NodeSelector": _NO_EXEC,
    _AFFINITY + "spread across nodes when pod has anti-affinity": _NO_EXEC,
    _AFFINITY + "on one node when pod has affinity": _NO_EXEC,
    _AFFINITY
    + "spread across nodes when pod management is parallel and pod has anti-affinity": _NO_EXEC,
    _AFFINITY + "on one node when pod management is parallel and pod has affinity": _NO_EXEC,
    _VOLUMES
    + "Local volume that cannot be mounted [Slow] should fail due to non-existent path": _NO_MOUNT,
    _VOLUMES + "Dynamic Provisioning [Slow] should provision storage using kind cluster's"
    " standard storage class": _NO_PROVISIONER,
    "jobseq: Job Error Handling job level LifecyclePolicy, Event: PodFailed,"
    " Action: RestartPod; Event PodEvicted, Action: TerminateJob, Timeout: 5m": (
        "waits for a failed pod to count as terminating, which is gone as soon as it is deleted;"
        " docs/decisions/0006"
    ),
    "schedulingaction: Reclaim E2E Test Reclaim Case 10: Multi reclaimed queue": (
        "both other queues are within their deserved share: the pods that fill the nodes belong to"
        " no queue, and do not reduce it; docs/decisions/0005"
    ),
    "schedulingbase: SLA Test sla adjusts job order": (
        "its second job is let in and placed while the first, which does not fit, still waits: a"
        " queue's deserved share is let in; docs/decisions/0005"
    ),
}
