"""Volcano's kinds that carry a job: Job, CronJob, JobFlow, JobTemplate and HyperJob.

The fields are those of reference/api.md section 1; the descriptions are ours.
"""

from __future__ import annotations

from tools.schemas.structural import (
    LABEL,
    SUBDOMAIN,
    CoreTypes,
    Schema,
    boolean,
    condition,
    count,
    embedded_metadata,
    int32,
    int64,
    integer,
    list_of,
    map_of,
    obj,
    one_of,
    string,
    strings,
    time,
)

EVENTS = (
    "*",
    "PodPending",
    "PodRunning",
    "PodFailed",
    "PodEvicted",
    "Unknown",
    "TaskCompleted",
    "OutOfSync",
    "CommandIssued",
    "JobUpdated",
    "TaskFailed",
)
JOB_PHASES = (
    "Pending",
    "Aborting",
    "Aborted",
    "Running",
    "Restarting",
    "Completing",
    "Completed",
    "Terminating",
    "Terminated",
    "Failed",
)


def network_topology() -> Schema:
    return obj(
        "Network topology constraint of the pods.",
        {
            "mode": one_of(
                "hard waits for a fitting place, soft only prefers one.",
                "hard",
                "soft",
                default="hard",
            ),
            "highestTierAllowed": integer("Highest tier that the pods may span.", minimum=0),
            "highestTierName": string("Highest tier by its name.", max_length=253),
        },
    )


def job_spec(core: CoreTypes, description: str) -> Schema:
    return obj(
        description,
        {
            "schedulerName": string("Default scheduler of the pods.", max_length=63),
            "minAvailable": count("Minimum number of pods that are scheduled together."),
            "volumes": list_of(_volume(core), "Claims mounted into every pod of the job."),
            "tasks": list_of(_task(core), "Tasks of the job.", min_items=1),
            "policies": list_of(_policy(), "Lifecycle policies of all tasks."),
            "plugins": map_of(strings(), "Job plugins by name, each with its arguments."),
            "runningEstimate": string("Expected duration; informational."),
            "queue": string(
                "Queue of the job.",
                max_length=253,
                pattern=SUBDOMAIN,
                default="default",
            ),
            "maxRetry": count("Number of restarts until the job fails.", default=3),
            "ttlSecondsAfterFinished": count("Seconds until a finished job is deleted."),
            "priorityClassName": string(
                "Priority class of the job, and default of its pods.",
                max_length=253,
                pattern=SUBDOMAIN,
            ),
            "minSuccess": int32("Number of succeeded pods until the job is completed.", minimum=1),
            "networkTopology": network_topology(),
        },
    )


def _volume(core: CoreTypes) -> Schema:
    return obj(
        "A claim and its mount path.",
        {
            "mountPath": string("Path in the containers.", min_length=1, pattern="^[^:]+$"),
            "volumeClaimName": string("An existing claim, or the name to give it.", max_length=253),
            "volumeClaim": core.get(
                "core.v1.PersistentVolumeClaimSpec", "The claim to create for this job."
            ),
        },
        required=("mountPath",),
    )


def _task(core: CoreTypes) -> Schema:
    return obj(
        "A task: pods with one template.",
        {
            "name": string("Unique in the job; part of pod names.", max_length=63, pattern=LABEL),
            "replicas": count("Number of pods."),
            "minAvailable": count("Minimum number of pods for the gang; the default is all."),
            "template": core.get("core.v1.PodTemplateSpec", "The pod to run."),
            "policies": list_of(
                _policy(), "Lifecycle policies of this task; they override the job's."
            ),
            "topologyPolicy": one_of(
                "NUMA topology policy.",
                "none",
                "best-effort",
                "restricted",
                "single-numa-node",
            ),
            "maxRetry": count("Number of container restarts until the task fails."),
            "dependsOn": obj(
                "Tasks that must be running before this one starts.",
                {
                    "name": strings("Names of tasks."),
                    "iteration": string("any for one of them, all for every one."),
                },
            ),
            "partitionPolicy": obj(
                "Splits the task into equal partitions that are scheduled separately.",
                {
                    "totalPartitions": int32("Number of partitions.", minimum=1),
                    "partitionSize": int32("Pods in each partition.", minimum=1),
                    "networkTopology": network_topology(),
                    "minPartitions": count(
                        "Minimum number of partitions that are scheduled together.", default=0
                    ),
                },
                required=("totalPartitions", "partitionSize"),
            ),
        },
    )


def _policy() -> Schema:
    return obj(
        "An action for an event or an exit code.",
        {
            "action": string("The action, such as RestartJob."),
            "event": one_of("The event that triggers it.", *EVENTS),
            "events": list_of(one_of("", *EVENTS), "Several events that trigger it."),
            "exitCode": int32("The exit code that triggers it; not 0."),
            "timeout": string("Delay of the action; it is cancelled if the cause disappears."),
        },
    )


def job(core: CoreTypes) -> dict[str, Schema]:
    return {"spec": job_spec(core, "The desired job."), "status": _job_status()}


def _job_status() -> Schema:
    return obj(
        "The observed state of the job.",
        {
            "state": _job_state(),
            "minAvailable": count("The effective gang size."),
            "taskStatusCount": map_of(_task_state(), "Pods of each task, counted by phase."),
            "pending": count("Pending pods."),
            "running": count("Running pods."),
            "succeeded": count("Succeeded pods."),
            "failed": count("Failed pods."),
            "terminating": count("Terminating pods."),
            "unknown": count("Pods in phase Unknown."),
            "version": count("Incremented with each restart of the job."),
            "retryCount": count("Restarts so far."),
            "runningDuration": string("From creation to the last change of state."),
            "controlledResources": map_of(string(), "Objects that the job's plugins created."),
            "conditions": list_of(
                obj(
                    "",
                    {
                        "status": string("A phase the job has been in."),
                        "lastTransitionTime": time("When it was entered last."),
                    },
                    required=("status",),
                ),
                "Past phases, newest last.",
            ),
        },
    )


def _job_state() -> Schema:
    return obj(
        "The phase and its reason.",
        {
            "phase": one_of("Phase of the job.", *JOB_PHASES),
            "reason": string("One CamelCase word for the reason."),
            "message": string("A readable message."),
            "lastTransitionTime": time("When the phase last changed."),
        },
    )


def _task_state() -> Schema:
    return obj("", {"phase": map_of(int32(), "Number of pods in each phase.")})


def cron_job(core: CoreTypes) -> dict[str, Schema]:
    spec = obj(
        "The schedule and the job.",
        {
            "schedule": string("The schedule, in five cron fields or as a name such as @hourly."),
            "timeZone": string("Time zone of the schedule, by its IANA name."),
            "startingDeadlineSeconds": int64("Maximum delay of a run in seconds.", minimum=0),
            "concurrencyPolicy": one_of(
                "What to do if the previous run is still active.",
                "Allow",
                "Forbid",
                "Replace",
                default="Allow",
            ),
            "suspend": boolean("Set true to start no runs.", default=False),
            "jobTemplate": obj(
                "The job to start.",
                {"metadata": embedded_metadata(), "spec": job_spec(core, "The desired job.")},
            ),
            "successfulJobsHistoryLimit": count("Completed jobs to keep.", default=3),
            "failedJobsHistoryLimit": count("Failed jobs to keep.", default=1),
        },
        required=("schedule", "jobTemplate"),
    )
    status = obj(
        "The observed state of the runs.",
        {
            "active": list_of(
                core.get("core.v1.ObjectReference", "A job that is running."),
                "Jobs that are running.",
                list_type="atomic",
            ),
            "lastScheduleTime": time("When a run was last due and started."),
            "lastSuccessfulTime": time("When a run last completed."),
        },
    )
    return {"spec": spec, "status": status}


def job_flow(core: CoreTypes) -> dict[str, Schema]:
    flow = obj(
        "A job of the flow and its dependencies.",
        {
            "name": string("Name of the JobTemplate to run.", min_length=1),
            "dependsOn": obj(
                "Dependencies of the job.",
                {"targets": strings("Flows that must have completed."), "probe": _flow_probe()},
            ),
            "patch": obj(
                "Changes to the template for this flow.",
                {"jobSpec": job_spec(core, "Fields that replace the template's.")},
            ),
        },
        required=("name",),
    )
    spec = obj(
        "Jobs and their dependencies.",
        {
            "flows": list_of(flow, "The jobs."),
            "jobRetainPolicy": one_of("Whether finished jobs are kept.", "retain", "delete"),
        },
    )
    return {"spec": spec, "status": _flow_status()}


def _flow_probe() -> Schema:
    task = string("Task to probe.", max_length=253)
    port = integer("Port to connect to.", minimum=0, maximum=65535)
    header = obj(
        "A header to send.",
        {"name": string("Its name."), "value": string("Its value.")},
        required=("name", "value"),
    )
    http = {
        "taskName": task,
        "path": string("Path of the request."),
        "port": port,
        "httpHeader": header,
    }
    return obj(
        "Probes of the dependencies.",
        {
            "httpGetList": list_of(obj("", http), "URLs that must respond."),
            "tcpSocketList": list_of(
                obj("", {"taskName": task, "port": port}, required=("port",)),
                "Ports that must accept a connection.",
            ),
            "taskStatusList": list_of(
                obj("", {"taskName": task, "phase": string("Phase it must be in.", max_length=63)}),
                "Tasks that must have reached a phase.",
            ),
        },
    )


def _flow_status() -> Schema:
    history = {
        "startTimestamp": time("When the state began."),
        "endTimestamp": time("When the state ended."),
        "state": string("The state."),
    }
    job_status = {
        "name": string("Name of the job."),
        "state": string("Its phase."),
        "startTimestamp": time("When it was created."),
        "endTimestamp": time("When it ended."),
        "restartCount": count("Its restarts."),
        "runningHistories": list_of(obj("", history), "Past states."),
    }
    summary = {
        "phase": string("Its phase."),
        "createTime": time("When it was created."),
        "runningDuration": string("Duration of the run."),
        "taskStatusCount": map_of(_task_state(), "Pods of each task, counted by phase."),
    }
    return obj(
        "The observed state of the jobs.",
        {
            "pendingJobs": strings("Pending jobs."),
            "runningJobs": strings("Running jobs."),
            "failedJobs": strings("Failed jobs."),
            "completedJobs": strings("Completed jobs."),
            "terminatedJobs": strings("Terminated jobs."),
            "unKnowJobs": strings("Jobs in any other phase; spelled as in Volcano."),
            "jobStatusList": list_of(obj("", job_status), "Each job in detail."),
            "conditions": map_of(obj("", summary), "Summary of each job by name."),
            "state": obj(
                "Phase of the flow.",
                {"phase": one_of("", "Succeed", "Terminating", "Failed", "Running", "Pending")},
            ),
        },
    )


def job_template(core: CoreTypes) -> dict[str, Schema]:
    status = {"jobDependsOnList": strings("Names of the jobs of this template.")}
    return {
        "spec": job_spec(core, "A job for flows; not run by itself."),
        "status": obj("Jobs that use the template.", status),
    }


def hyper_job(core: CoreTypes) -> dict[str, Schema]:
    split = obj(
        "How a large job is split.",
        {
            "mode": one_of("Fixed, or computed.", "static", "auto"),
            "accelerators": int32("Accelerators in each part."),
            "acceleratorType": string("Resource name of the accelerator."),
        },
    )
    replicated = obj(
        "A job template and its number of jobs.",
        {
            "name": string("Unique in the hyper job."),
            "templateSpec": job_spec(core, "The spec of each job."),
            "splitPolicy": split,
            "replicas": int32("Number of jobs.", default=1),
            "clusterNames": strings("Clusters for the jobs; the default is all."),
        },
        required=("name",),
    )
    spec = obj(
        "Related jobs in one or several clusters.",
        {
            "replicatedJobs": list_of(
                replicated, "The jobs.", list_type="map", list_map_keys=["name"]
            ),
            "minAvailable": int32("Minimum number of jobs that are scheduled together."),
            "maxDomains": int32("Maximum number of clusters."),
            "plugins": map_of(strings(), "Plugins by name, each with its arguments."),
        },
    )
    status_of_one = {
        "name": string("Name of the replicated job."),
        "jobStates": map_of(_job_state(), "State of each job by name."),
        **{
            p: int32()
            for p in ("pending", "running", "succeeded", "failed", "terminating", "unknown")
        },
    }
    status = obj(
        "The observed state of the jobs.",
        {
            "conditions": list_of(condition(), "Facts.", list_type="map", list_map_keys=["type"]),
            "replicatedJobsStatus": list_of(
                obj("", status_of_one, required=("name",)),
                "Counts for each replicated job.",
                list_type="map",
                list_map_keys=["name"],
            ),
            "splitCount": int32("Number of parts."),
            "observedGeneration": int64("The observed generation."),
        },
    )
    return {"spec": spec, "status": status}
