"""Volcano's kinds that carry a job: Job, CronJob, JobFlow, JobTemplate and HyperJob.

Shapes are those of reference/api.md section 1; the sentences are ours.
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
        "How close together the pods must be on the network.",
        {
            "mode": one_of(
                "hard waits for a fitting place, soft only prefers one.",
                "hard",
                "soft",
                default="hard",
            ),
            "highestTierAllowed": integer("Pods may not spread above this tier.", minimum=0),
            "highestTierName": string("The same bound by the tier's name.", max_length=253),
        },
    )


def job_spec(core: CoreTypes, description: str) -> Schema:
    return obj(
        description,
        {
            "schedulerName": string("Scheduler for pods whose template names none.", max_length=63),
            "minAvailable": count("Pods that must be able to run together before any starts."),
            "volumes": list_of(_volume(core), "Claims mounted into every pod of the job."),
            "tasks": list_of(
                _task(core), "The groups of equal pods that make up the job.", min_items=1
            ),
            "policies": list_of(_policy(), "What to do when something happens, for all tasks."),
            "plugins": map_of(strings(), "Job plugins by name, each with its arguments."),
            "runningEstimate": string("How long the user expects it to run; for information."),
            "queue": string(
                "Queue that the job waits in.",
                max_length=253,
                pattern=SUBDOMAIN,
                default="default",
            ),
            "maxRetry": count("Restarts after which the job counts as failed.", default=3),
            "ttlSecondsAfterFinished": count("Seconds after its end until the job is removed."),
            "priorityClassName": string(
                "Priority class of the job and of pods that name none.",
                max_length=253,
                pattern=SUBDOMAIN,
            ),
            "minSuccess": int32("Succeeded pods at which the job counts as completed.", minimum=1),
            "networkTopology": network_topology(),
        },
    )


def _volume(core: CoreTypes) -> Schema:
    return obj(
        "A claim and where it is mounted.",
        {
            "mountPath": string("Path in the containers.", min_length=1, pattern="^[^:]+$"),
            "volumeClaimName": string("An existing claim, or the name to give it.", max_length=253),
            "volumeClaim": core.get(
                "core.v1.PersistentVolumeClaimSpec", "The claim to make for this job."
            ),
        },
        required=("mountPath",),
    )


def _task(core: CoreTypes) -> Schema:
    return obj(
        "A group of equal pods.",
        {
            "name": string("Unique in the job; part of pod names.", max_length=63, pattern=LABEL),
            "replicas": count("How many pods."),
            "minAvailable": count("How many of them count for the gang; all if left out."),
            "template": core.get("core.v1.PodTemplateSpec", "The pod to run."),
            "policies": list_of(
                _policy(), "What to do on events of this task; wins over the job's."
            ),
            "topologyPolicy": one_of(
                "How CPUs must lie on NUMA nodes.",
                "none",
                "best-effort",
                "restricted",
                "single-numa-node",
            ),
            "maxRetry": count("Container restarts after which the task counts as failed."),
            "dependsOn": obj(
                "Tasks that must be up before this one starts.",
                {
                    "name": strings("Names of tasks."),
                    "iteration": string("any for one of them, all for every one."),
                },
            ),
            "partitionPolicy": obj(
                "Splits the task into equal parts that are placed each on its own.",
                {
                    "totalPartitions": int32("How many parts.", minimum=1),
                    "partitionSize": int32("Pods in each part.", minimum=1),
                    "networkTopology": network_topology(),
                    "minPartitions": count("Parts that must be placed together.", default=0),
                },
                required=("totalPartitions", "partitionSize"),
            ),
        },
    )


def _policy() -> Schema:
    return obj(
        "An action for an event or an exit code.",
        {
            "action": string("What to do, for example RestartJob."),
            "event": one_of("The event that triggers it.", *EVENTS),
            "events": list_of(one_of("", *EVENTS), "Several events that trigger it."),
            "exitCode": int32("The exit code that triggers it; not 0."),
            "timeout": string("Wait this long first, and drop it if the cause goes away."),
        },
    )


def job(core: CoreTypes) -> dict[str, Schema]:
    return {"spec": job_spec(core, "What the job runs."), "status": _job_status()}


def _job_status() -> Schema:
    return obj(
        "What is known about the job.",
        {
            "state": _job_state(),
            "minAvailable": count("The gang size in force."),
            "taskStatusCount": map_of(_task_state(), "Pods of each task, counted by phase."),
            "pending": count("Pods not started yet."),
            "running": count("Pods that run."),
            "succeeded": count("Pods that ended well."),
            "failed": count("Pods that ended badly."),
            "terminating": count("Pods being deleted."),
            "unknown": count("Pods of unknown state."),
            "version": count("Raised by one with each restart of the whole job."),
            "retryCount": count("Restarts so far."),
            "runningDuration": string("From creation to the last change of state."),
            "controlledResources": map_of(string(), "Objects that the job's plugins made."),
            "conditions": list_of(
                obj(
                    "",
                    {
                        "status": string("A phase the job has been in."),
                        "lastTransitionTime": time("When it was entered last."),
                    },
                    required=("status",),
                ),
                "The phases so far, the newest last.",
            ),
        },
    )


def _job_state() -> Schema:
    return obj(
        "The phase and how it was reached.",
        {
            "phase": one_of("Where the job is in its life.", *JOB_PHASES),
            "reason": string("One word for why."),
            "message": string("Why, for people."),
            "lastTransitionTime": time("When the phase last changed."),
        },
    )


def _task_state() -> Schema:
    return obj("", {"phase": map_of(int32(), "Number of pods in each phase.")})


def cron_job(core: CoreTypes) -> dict[str, Schema]:
    spec = obj(
        "When to start which job.",
        {
            "schedule": string("When, in cron's five fields or as @hourly and the like."),
            "timeZone": string("Time zone of the schedule, by its IANA name."),
            "startingDeadlineSeconds": int64("How late a run may still start.", minimum=0),
            "concurrencyPolicy": one_of(
                "What to do when the last run is still going.",
                "Allow",
                "Forbid",
                "Replace",
                default="Allow",
            ),
            "suspend": boolean("Set true to start no runs for now.", default=False),
            "jobTemplate": obj(
                "The job to start.",
                {"metadata": embedded_metadata(), "spec": job_spec(core, "What the job runs.")},
            ),
            "successfulJobsHistoryLimit": count("Completed jobs to keep.", default=3),
            "failedJobsHistoryLimit": count("Failed jobs to keep.", default=1),
        },
        required=("schedule", "jobTemplate"),
    )
    status = obj(
        "What is known about the runs.",
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
        "One job of the flow, and what it waits for.",
        {
            "name": string("Name of the JobTemplate to run.", min_length=1),
            "dependsOn": obj(
                "What must have happened first.",
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
        "Jobs and the order they run in.",
        {
            "flows": list_of(flow, "The jobs."),
            "jobRetainPolicy": one_of("Whether finished jobs are kept.", "retain", "delete"),
        },
    )
    return {"spec": spec, "status": _flow_status()}


def _flow_probe() -> Schema:
    task = string("Task to look at.", max_length=253)
    port = integer("Port to connect to.", minimum=0, maximum=65535)
    header = obj(
        "A header to send.",
        {"name": string("Its name."), "value": string("Its value.")},
        required=("name", "value"),
    )
    http = {
        "taskName": task,
        "path": string("Path to ask for."),
        "port": port,
        "httpHeader": header,
    }
    return obj(
        "Checks on the jobs waited for.",
        {
            "httpGetList": list_of(obj("", http), "URLs that must answer."),
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
        "runningHistories": list_of(obj("", history), "Its states so far."),
    }
    summary = {
        "phase": string("Its phase."),
        "createTime": time("When it was created."),
        "runningDuration": string("How long it has run."),
        "taskStatusCount": map_of(_task_state(), "Pods of each task, counted by phase."),
    }
    return obj(
        "What is known about the jobs.",
        {
            "pendingJobs": strings("Jobs that wait."),
            "runningJobs": strings("Jobs that run."),
            "failedJobs": strings("Jobs that failed."),
            "completedJobs": strings("Jobs that completed."),
            "terminatedJobs": strings("Jobs that were stopped."),
            "unKnowJobs": strings("Jobs in any other phase; spelled as in Volcano."),
            "jobStatusList": list_of(obj("", job_status), "Each job in detail."),
            "conditions": map_of(obj("", summary), "Each job in short, by name."),
            "state": obj(
                "Where the flow is in its life.",
                {"phase": one_of("", "Succeed", "Terminating", "Failed", "Running", "Pending")},
            ),
        },
    )


def job_template(core: CoreTypes) -> dict[str, Schema]:
    status = {"jobDependsOnList": strings("Names of the jobs made from this template.")}
    return {
        "spec": job_spec(core, "A job to be used by flows; not run by itself."),
        "status": obj("Who uses the template.", status),
    }


def hyper_job(core: CoreTypes) -> dict[str, Schema]:
    split = obj(
        "How one big job is cut up.",
        {
            "mode": one_of("By fixed numbers, or worked out.", "static", "auto"),
            "accelerators": int32("Accelerators in each piece."),
            "acceleratorType": string("Resource name of the accelerator."),
        },
    )
    replicated = obj(
        "A job and how many of it.",
        {
            "name": string("Unique in the hyper job."),
            "templateSpec": job_spec(core, "What each job runs."),
            "splitPolicy": split,
            "replicas": int32("How many jobs.", default=1),
            "clusterNames": strings("Clusters that may run it; any if left out."),
        },
        required=("name",),
    )
    spec = obj(
        "Jobs that belong together, perhaps in several clusters.",
        {
            "replicatedJobs": list_of(
                replicated, "The jobs.", list_type="map", list_map_keys=["name"]
            ),
            "minAvailable": int32("Jobs that must be able to run together."),
            "maxDomains": int32("Clusters the jobs may be spread over at most."),
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
        "What is known about the jobs.",
        {
            "conditions": list_of(condition(), "Facts.", list_type="map", list_map_keys=["type"]),
            "replicatedJobsStatus": list_of(
                obj("", status_of_one, required=("name",)),
                "Counts for each replicated job.",
                list_type="map",
                list_map_keys=["name"],
            ),
            "splitCount": int32("Pieces the jobs were cut into."),
            "observedGeneration": int64("The generation acted on."),
        },
    )
    return {"spec": spec, "status": status}
