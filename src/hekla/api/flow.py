"""flow.volcano.sh/v1alpha1: JobFlow and JobTemplate.

The spec of a JobTemplate is a job spec, and a flow's patch may be partial; both are plain dicts
because they are merged and copied.
"""

from __future__ import annotations

from typing import Any

from msgspec import field

from hekla.api.meta import Model, Object


class Header(Model):
    name: str = ""
    value: str = ""


class HttpGet(Model):
    task_name: str = ""
    path: str = ""
    port: int = 0
    http_header: Header | None = None


class TcpSocket(Model):
    task_name: str = ""
    port: int = 0


class TaskStatusProbe(Model):
    task_name: str = ""
    phase: str = ""


class FlowProbe(Model):
    http_get_list: tuple[HttpGet, ...] = ()
    tcp_socket_list: tuple[TcpSocket, ...] = ()
    task_status_list: tuple[TaskStatusProbe, ...] = ()


class FlowDependsOn(Model):
    targets: tuple[str, ...] = ()
    probe: FlowProbe | None = None


class FlowPatch(Model):
    job_spec: dict[str, Any] = field(default_factory=dict)


class Flow(Model):
    name: str = ""
    depends_on: FlowDependsOn | None = None
    patch: FlowPatch | None = None


class JobFlowSpec(Model):
    flows: tuple[Flow, ...] = ()
    job_retain_policy: str = ""


class RunningHistory(Model):
    start_timestamp: str | None = None
    end_timestamp: str | None = None
    state: str = ""


class FlowJobStatus(Model):
    name: str = ""
    state: str = ""
    start_timestamp: str | None = None
    end_timestamp: str | None = None
    restart_count: int = 0
    running_histories: tuple[RunningHistory, ...] = ()


class FlowTaskState(Model):
    phase: dict[str, int] = field(default_factory=dict)


class FlowCondition(Model):
    phase: str = ""
    create_time: str | None = None
    running_duration: str | None = None
    task_status_count: dict[str, FlowTaskState] = field(default_factory=dict)


class FlowState(Model):
    phase: str = ""


class JobFlowStatus(Model):
    pending_jobs: tuple[str, ...] = ()
    running_jobs: tuple[str, ...] = ()
    failed_jobs: tuple[str, ...] = ()
    completed_jobs: tuple[str, ...] = ()
    terminated_jobs: tuple[str, ...] = ()
    unknown_jobs: tuple[str, ...] = field(default=(), name="unKnowJobs")  # Volcano's spelling
    job_status_list: tuple[FlowJobStatus, ...] = ()
    conditions: dict[str, FlowCondition] = field(default_factory=dict)
    state: FlowState = field(default_factory=FlowState)


class JobFlow(Object):
    spec: JobFlowSpec = field(default_factory=JobFlowSpec)
    status: JobFlowStatus = field(default_factory=JobFlowStatus)


class JobTemplateStatus(Model):
    job_depends_on_list: tuple[str, ...] = ()


class JobTemplate(Object):
    spec: dict[str, Any] = field(default_factory=dict)
    status: JobTemplateStatus = field(default_factory=JobTemplateStatus)
