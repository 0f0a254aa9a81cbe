"""Volcano's six verbs on jobs: messages, columns, exit codes, and the meaning of -n."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla import history, list_jobs
from hekla.kube.resources import COMMANDS, EVENTS, JOBS, QUEUES
from hekla.kube.sync_client import SyncClient
from tests.cli.conftest import Run, job

Make = Callable[..., dict[str, Any]]

HEADER = (
    "Creation       Phase       JobType     Replicas    Min   Pending   Running   Succeeded   "
    "Failed    Unknown     RetryCount"
)


def test_empty_list_prints_volcanos_message(vcctl: Run) -> None:
    done = vcctl("job", "list")
    assert (done.code, done.out, done.err) == (0, "No resources found\n", "")


def test_list_has_volcanos_columns_and_padding(vcctl: Run, make_job: Make) -> None:
    status = {"minAvailable": 2, "pending": 1, "running": 2, "retryCount": 3}
    made = make_job("train", replicas=3, phase="Running", status=status)
    day = made["metadata"]["creationTimestamp"][:10]
    done = vcctl("job", "list")
    assert done.code == 0
    assert done.lines == [
        f"Name    {HEADER}",
        f"train   {day}     Running     Batch       3           2     1         2         0"
        "           0         0           3         ",
    ]


def test_all_namespaces_adds_a_column_in_front(vcctl: Run, make_job: Make, namespace: str) -> None:
    make_job("train")
    done = vcctl("job", "list", "--all-namespaces")
    assert re.match(r"Namespace +Name +Creation", done.lines[0])
    assert any(line.startswith(namespace) for line in done.lines)


def test_lists_filter_by_queue_scheduler_name_phase_and_label(vcctl: Run, make_job: Make) -> None:
    make_job("one", phase="Pending", labels={"team": "a"})
    make_job("two", phase="Running", labels={"volcano.sh/job-type": "MPI"})

    def names(*args: str) -> list[str]:
        return [line.split("/")[1] for line in vcctl("job", "list", *args, "-o", "name").lines]

    assert names() == ["one", "two"]
    assert names("-q", "default") == ["one", "two"]
    assert names("-q", "other") == []
    assert names("-S", "volcano") == ["one", "two"]
    assert names("--selector", "tw") == ["two"]
    assert names("--phase", "pending,failed") == ["one"]
    assert names("-l", "team=a") == ["one"]
    assert "MPI" in vcctl("job", "list").out


def test_run_without_a_file_creates_volcanos_job(
    vcctl: Run, admin: SyncClient, namespace: str
) -> None:
    done = vcctl("job", "run", "-N", "test-job", "-r", "3", "-m", "2", "-R", "cpu=500m")
    assert (done.code, done.out) == (0, "run job test-job successfully\n")
    made = admin.get(JOBS, "test-job", namespace=namespace)
    assert made["spec"]["minAvailable"] == 2
    (task,) = made["spec"]["tasks"]
    assert (task["name"], task["replicas"]) == ("default0", 3)
    assert task["template"]["metadata"]["labels"] == {"job.volcano.sh": "test-job"}
    (container,) = task["template"]["spec"]["containers"]
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {
        "requests": {"cpu": "500m"},
        "limits": {"cpu": "1000m", "memory": "100Mi"},
    }


@pytest.mark.parametrize(
    ("args", "want"),
    {
        "no name": (("job", "run"), "Failed to run job: job name cannot be left blank\n"),
        "not a YAML file": (
            ("job", "run", "-f", "job.json"),
            "Failed to run job: only support yaml file\n",
        ),
        "no such file": (
            ("job", "run", "-f", "/nowhere/job.yaml"),
            "Failed to run job: open /nowhere/job.yaml: no such file or directory\n",
        ),
        "bad resources": (
            ("job", "run", "-N", "x", "-R", "cpu"),
            "Failed to run job: invalid resource 'cpu', expected <resource>=<value>\n",
        ),
        "view needs a name": (
            ("job", "view"),
            "Failed to view job: job name (specified by --name or -N) is mandatory to view a "
            "particular job\n",
        ),
        "suspend needs a name": (
            ("job", "suspend"),
            "Failed to suspend job: job name is mandatory to suspend job\n",
        ),
        "resume needs a name": (
            ("job", "resume"),
            "Failed to resume job: job name is mandatory to resume job\n",
        ),
        "delete needs a name": (
            ("job", "delete"),
            "Failed to delete job: job name is mandatory to delete job\n",
        ),
        "view of nothing": (
            ("job", "view", "-N", "gone"),
            'Failed to view job: jobs.batch.volcano.sh "gone" not found\n',
        ),
        "suspend of nothing": (
            ("job", "suspend", "-n", "gone"),
            'Failed to suspend job: jobs.batch.volcano.sh "gone" not found\n',
        ),
        "delete of nothing": (
            ("job", "delete", "gone"),
            'Failed to delete job: jobs.batch.volcano.sh "gone" not found\n',
        ),
    }.values(),
)
def test_failure_exits_255_with_volcanos_line_and_a_hint_on_stderr_only(
    vcctl: Run, args: tuple[str, ...], want: str
) -> None:
    done = vcctl(*args)
    assert (done.code, done.out) == (255, "")
    assert done.err.startswith(want)


def test_n_alone_is_the_job_name(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    make_job("my-job")
    assert vcctl("job", "view", "-n", "my-job").out.startswith("Name:\tmy-job\n")
    assert vcctl("job", "suspend", "-n", "my-job").out == ""
    assert vcctl("job", "resume", "-n", "my-job").out == ""
    commands = admin.list(COMMANDS, namespace=namespace)
    assert sorted(one["action"] for one in commands) == ["AbortJob", "ResumeJob"]
    first = min(commands, key=lambda one: one["action"])
    assert first["metadata"]["generateName"] == "my-job-abortjob-"
    assert first["metadata"]["ownerReferences"] == [first["target"]]
    done = vcctl("job", "delete", "-n", "my-job")
    assert (done.code, done.out) == (0, "delete job my-job successfully\n")


def test_n_is_the_namespace_if_capital_n_is_given(
    vcctl: Run, make_job: Make, namespace: str
) -> None:
    make_job("my-job")
    for args in (
        ("-N", "my-job", "-n", namespace),
        ("--name", "my-job", "--namespace", namespace),
        ("my-job", "-n", namespace),
        ("-n", "my-job", "--namespace", namespace),
        (f"-n={namespace}", "-N=my-job"),
    ):
        assert vcctl("job", "view", *args, "-o", "name").out == "job.batch.volcano.sh/my-job\n"
    assert vcctl("job", "view", "-N", "my-job", "-n", "default").code == 255


def test_n_that_names_a_namespace_gets_a_hint(vcctl: Run, namespace: str) -> None:
    done = vcctl("job", "view", "-n", namespace)
    assert done.code == 255
    assert f'there is a namespace "{namespace}": -n alone is the job\'s name' in done.err
    assert f"use -N NAME -n {namespace}" in done.err


def test_two_namespaces_or_names_are_a_usage_error(vcctl: Run) -> None:
    done = vcctl("job", "view", "-N", "a", "-n", "b", "--namespace", "c")
    assert done.code == 1
    assert done.err.startswith('Error: two namespaces given: -n "b" and --namespace "c"')
    assert vcctl("job", "view", "-N", "a", "b").code == 1


def test_misspelt_job_name_gets_a_suggestion(vcctl: Run, make_job: Make) -> None:
    make_job("training")
    assert 'did you mean "training"?' in vcctl("job", "view", "trainign").err


def test_job_in_another_namespace_gets_a_hint(vcctl: Run, make_job: Make, namespace: str) -> None:
    name = f"only-{namespace}"
    make_job(name)
    done = vcctl("job", "view", "-N", name, "-n", "default")
    assert f"it exists in namespace {namespace}: use -N {name} -n {namespace}" in done.err


def test_run_from_a_file_uses_its_namespace_and_rejects_another(
    vcctl: Run, tmp_path: Path, namespace: str
) -> None:
    manifest = job("from-file")
    manifest["metadata"]["namespace"] = namespace
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(manifest))
    done = vcctl("job", "run", "-f", str(file), "-n", "default")
    assert done.code == 255
    assert "does not match the namespace sent on the request" in done.err
    done = vcctl("job", "run", "-f", str(file))
    assert (done.code, done.out) == (0, "run job from-file successfully\n")
    done = vcctl("job", "run", "-f", str(file))
    assert done.err.startswith(
        'Failed to run job: jobs.batch.volcano.sh "from-file" already exists\n'
    )


def test_invalid_manifest_is_rejected_before_it_is_sent(
    vcctl: Run, tmp_path: Path, unique: str
) -> None:
    manifest = job("wrong", queue=f"{unique}-nowhere")
    manifest["spec"]["minAvaliable"] = 1
    manifest["spec"]["policies"] = [{"event": "PodFailed", "action": "Restart"}]
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump(manifest))
    done = vcctl("job", "run", "-f", str(file))
    assert done.code == 255
    assert "spec.minAvaliable: unknown field" in done.err
    assert "did you mean 'minAvailable'?" in done.err
    assert "spec.queue" in done.err
    assert "spec.policies[0].action" in done.err


def test_file_of_another_kind_is_rejected_with_a_hint(vcctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "queue.yaml"
    file.write_text("apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: x}\n")
    done = vcctl("job", "run", "-f", str(file))
    assert done.code == 255
    assert "contains a Queue" in done.err
    assert "kubectl apply -f" in done.err


def test_report_contains_volcanos_sections_and_more(
    vcctl: Run, make_job: Make, namespace: str
) -> None:
    status = {
        "running": 2,
        "minAvailable": 2,
        "version": 1,
        "taskStatusCount": {"worker": {"phase": {"Running": 2}}},
        "conditions": [{"status": "Running", "lastTransitionTime": "2026-01-02T03:04:05Z"}],
    }
    made = make_job("train", replicas=2, phase="Running", status=status)
    want = [
        "Name:\ttrain",
        f"Namespace:\t{namespace}",
        "Labels:\t<none>",
        "Annotations:\t<none>",
        "API Version:\tbatch.volcano.sh/v1alpha1",
        "Kind:\tJob",
        "Metadata:",
        f"  Creation Timestamp:\t{made['metadata']['creationTimestamp']}",
        "  Generate Name:\t",
        "  Generation:\t1",
        f"  Resource Version:\t{made['metadata']['resourceVersion']}",
        f"  UID:\t{made['metadata']['uid']}",
        "Spec:",
        "  Min Available:\t2",
        "  Scheduler Name:\tvolcano",
        "  Queue:\tdefault",
        "  Max Retry:\t3",
        "  Tasks:",
        "    Name:\tworker",
        "    Replicas:\t2",
        "    Min Available:\t2",
        "    Template:",
        "      Spec:",
        "        Containers:",
        "          Image:\tbusybox",
        "          Name:\tmain",
        "        Image Pull Secrets:\t<none>",
        "        Restart Policy:\tNever",
        "Status:",
        "  Running:\t2",
        "  Min Available:\t2",
        "  Version:\t1",
        "  State:",
        "    Phase:\tRunning",
        "  Tasks:",
        "    worker:\t2 Running",
        "  Conditions:",
        "    Status:\tRunning",
        "    TransitionTime:\t2026-01-02T03:04:05Z",
        "Events: \t<none>",
    ]
    assert vcctl("job", "view", "train").lines == want


def test_report_ends_with_the_events(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    from hekla.kube.resources import EVENTS

    made = make_job("train")
    admin.create(
        EVENTS,
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "train.1", "namespace": namespace},
            "involvedObject": {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "name": "train",
                "namespace": namespace,
                "uid": made["metadata"]["uid"],
            },
            "type": "Normal",
            "reason": "ExecuteAction",
            "message": "Start to execute action AbortJob",
            "source": {"component": "vc-controller-manager"},
            "count": 1,
        },
    )
    tail = vcctl("job", "view", "train").lines[-4:]
    assert tail[0] == "Events:"
    assert tail[1].split() == ["Type", "Reason", "Age", "Form", "Message"]
    assert set(tail[2]) == {"-", " "}
    assert tail[3].startswith("Normal         ExecuteAction" + " " * 27)
    assert tail[3].endswith("vc-controller-manager" + " " * 19 + "Start to execute action AbortJob")


def test_run_of_a_file_with_generate_name_prints_the_generated_name(
    vcctl: Run, admin: SyncClient, tmp_path: Path, namespace: str
) -> None:
    manifest = job("x")
    manifest["metadata"] = {"generateName": "gen-"}
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(manifest))
    done = vcctl("job", "run", "-f", str(path))
    assert done.code == 0, done.err
    (made,) = admin.list(JOBS, namespace=namespace)
    assert done.out == f"run job {made['metadata']['name']} successfully\n"

    manifest["metadata"] = {"generateName": "Gen_"}
    path.write_text(yaml.safe_dump(manifest))
    done = vcctl("job", "run", "-f", str(path))
    assert done.code == 255
    assert 'Job "Gen_" is invalid' in done.err


def _event(name: str, about: dict[str, str], namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": {"namespace": namespace, **about},
        "reason": name.capitalize(),
        "message": f"message of {name}",
        "type": "Normal",
        "lastTimestamp": "2030-01-01T00:00:00Z",
    }


def test_view_shows_events_of_other_recorders_and_of_the_podgroup(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    metadata = make_job("train")["metadata"]
    api, uid = "batch.volcano.sh/v1alpha1", metadata["uid"]
    group = {"kind": "PodGroup", "name": f"train-{uid}"}
    for name, about in {
        "full": {"apiVersion": api, "kind": "Job", "name": "train", "uid": uid},
        "bare": {"name": "train"},
        "empty": {"apiVersion": api, "kind": "Job", "name": "train", "uid": ""},
        "group": {"apiVersion": "scheduling.volcano.sh/v1beta1", "uid": "g", **group},
        "earlier": {"apiVersion": api, "kind": "Job", "name": "train", "uid": "other"},
        "foreign": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"},
        "pod": {"apiVersion": "v1", "kind": "Pod", "name": "train"},
    }.items():
        admin.create(EVENTS, _event(name, about, namespace), namespace=namespace)
    shown = vcctl("job", "view", "train").out
    found = {line.split()[1] for line in shown.splitlines() if "message of" in line}
    assert found == {"Full", "Bare", "Empty", "Group"}


def test_several_jobs_are_deleted_and_a_missing_one_is_reported(
    vcctl: Run, make_job: Make, admin: SyncClient, namespace: str
) -> None:
    for name in ("a", "b", "c"):
        make_job(name)
    done = vcctl("job", "delete", "a", "gone", "job/b")
    assert done.code == 255
    assert done.lines == ["delete job a successfully", "delete job b successfully"]
    assert 'Failed to delete job gone: jobs.batch.volcano.sh "gone" not found' in done.err
    assert [one["metadata"]["name"] for one in admin.list(JOBS, namespace=namespace)] == ["c"]
    assert vcctl("job", "suspend", "c", "c").code == 0
    done = vcctl("job", "delete", "pod/c")
    assert (done.code, done.out) == (255, "")
    assert "write NAME or job/NAME" in done.err
    assert vcctl("job", "delete", "a", "b", "-N", "c").code == 1


def test_several_queues_are_deleted(vcctl: Run, admin: SyncClient, unique: str) -> None:
    names = [f"{unique}-{letter}" for letter in "ab"]
    for name in names:
        assert vcctl("queue", "create", name).code == 0
    assert vcctl("queue", "delete", *names).code == 0
    assert not [one for one in admin.list(QUEUES) if one["metadata"]["name"] in names]


def test_unknown_phases_are_refused_with_a_suggestion(tool: Run, config: Path) -> None:
    for words in (("vcctl", "job", "list"), ("vjobs",), ("hekla", "history"), ("hekla", "usage")):
        done = tool(*words, "--phase", "Faild")
        assert (done.code, done.out) == (1, "")
        assert "'Faild' is no phase of a job; did you mean 'Failed'?" in done.err
    assert tool("vcctl", "job", "list", "--phase", "pending,Running").code == 0
    assert "there are: Pending, " in tool("vcctl", "job", "list", "--phase", "xyz").err
    with pytest.raises(ValueError, match="did you mean 'Failed'"):
        list_jobs(phase="Faild")
    with pytest.raises(ValueError, match="did you mean 'Cancelled'"):
        history(phase="canceled")
