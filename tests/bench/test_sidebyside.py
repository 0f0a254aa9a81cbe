"""The side-by-side benchmark: its arithmetic, and a small run on real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import yaml
from bench.sidebyside import audit, cases, plot, run, systems, timeline
from bench.sidebyside.cases import NAMESPACE, NODE_CPU, Case
from bench.sidebyside.dialects import KUEUE_JOB, VOLCANO, VOLCANO_JOB
from bench.sidebyside.systems import System
from bench.sidebyside.timeline import Timeline
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from tools.kube.cluster import parts_for
from tools.kube.gobuild import missing
from tools.peers import kueue

ROOT = Path(__file__).parents[2]


def history(*pods: tuple[str, float, float | None, str]) -> Timeline:
    """Pods of (gang, created, bound, node)."""
    seen = Timeline()
    for number, (gang, created, bound, node) in enumerate(pods):
        name = f"{gang}-{number}"
        seen.see(created, name, name, gang, "")
        if bound is not None:
            seen.see(bound, name, name, gang, node)
    return seen


def test_rates_and_waits_are_computed_from_watch_events() -> None:
    seen = history(("a", 10.0, 11.0, "n1"), ("a", 10.5, 12.0, "n2"), ("b", 11.0, 14.0, "n1"))
    found = timeline.speeds(seen, began=9.0)
    assert found["bound"] == 3
    assert (found["first_create_s"], found["last_bind_s"]) == (1.0, 5.0)
    assert found["pods_per_s"] == 3 / 4.0, "from the first create to the last bind"
    assert found["wait_p50_s"] == 1.5
    assert found["gang_p99_s"] == 3.0


FAULTS: dict[str, tuple[Timeline, Counter[str], dict[str, int]]] = {
    "all is well": (
        history(("a", 0, 1, "n1"), ("a", 0, 1, "n2")),
        Counter({"a-0": 1, "a-1": 1}),
        {},
    ),
    "a gang is half bound": (
        history(("a", 0, 1, "n1"), ("a", 0, None, "")),
        Counter(),
        {"half_bound_gangs": 1, "unbound_pods": 1},
    ),
    "the server took two binds of a pod": (
        history(("a", 0, 1, "n1"), ("a", 0, 1, "n1")),
        Counter({"a-0": 2, "a-1": 1}),
        {"double_binds": 1},
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_counted(case: str) -> None:
    seen, bindings, want = FAULTS[case]
    found = timeline.faults(Case("x", 1, 2, 1), seen, bindings)
    assert {key: count for key, count in found.items() if count} == want


def test_a_pod_that_changes_its_node_is_a_double_bind() -> None:
    seen = history(("a", 0, 1, "n1"), ("a", 0, 1, "n1"))
    seen.see(2.0, "a-0", "a-0", "a", "n2")
    assert timeline.faults(Case("x", 1, 2, 1), seen, Counter())["double_binds"] == 1


@pytest.mark.parametrize(("leaves_at", "want"), [(None, 1), (4.5, 1), (3.5, 0)])
def test_a_node_is_overcommitted_at_any_moment_of_the_run(
    leaves_at: float | None, want: int
) -> None:
    full = [("a", 0.0, 1.0, "n1")] * NODE_CPU
    seen = history(*full, ("b", 2.0, 4.0, "n1"))
    if leaves_at is not None:
        seen.lose(leaves_at, "a-0")
    assert timeline.faults(Case("x", 1, 2, 1), seen, Counter())["overcommitted_nodes"] == want


def test_filler_pods_are_on_nodes_but_not_in_the_numbers() -> None:
    full = [("f0", 0.0, 1.0, "n1")] * NODE_CPU
    seen = history(*full, ("a", 2.0, 4.0, "n1"))
    want = Case("x", 1, 1, 1, displaces="preempt")
    assert timeline.faults(want, seen, Counter())["overcommitted_nodes"] == 1, "no pod was deleted"
    seen.lose(3.0, "f0-0")
    assert not any(timeline.faults(want, seen, Counter()).values())
    assert timeline.speeds(seen, began=1.0)["pods"] == 1
    assert seen.displaced() == 1


@pytest.mark.parametrize("way", ["preempt", "reclaim"])
def test_an_eviction_case_has_the_action_and_victims(way: str) -> None:
    case = cases.find(f"{way}-10x100@100")
    assert f"allocate, {way}, backfill" in run.configuration(case)
    filler = case.filler()
    assert filler.pods == case.nodes * NODE_CPU
    (group,) = {str(VOLCANO.group(filler, name)["spec"]) for name in filler.gang_names()}
    assert group != str(VOLCANO.group(case, "g00000")["spec"])


def test_a_curve_ends_with_everything_counted() -> None:
    found = timeline.curve([1.0, 2.0, 4.0], began=0.0, points=4)
    assert found == [(0.0, 0), (1.0, 1), (2.0, 2), (3.0, 2), (4.0, 3)]


def test_calls_are_counted_by_program_and_watches_are_not(tmp_path: Path) -> None:
    bind = {"resource": "pods", "subresource": "binding", "name": "p", "namespace": NAMESPACE}
    entries = [
        {"verb": "create", "userAgent": "x/1", "objectRef": bind, "responseStatus": {"code": 201}},
        {"verb": "create", "userAgent": "x/1", "objectRef": bind, "responseStatus": {"code": 409}},
        {"verb": "watch", "userAgent": "x/1", "objectRef": {"resource": "pods"}},
        {"verb": "list", "userAgent": "y/1", "objectRef": {"resource": "nodes"}},
    ]
    log = tmp_path / "audit.log"
    log.write_text("before\n" + "".join(json.dumps(entry) + "\n" for entry in entries))
    found = audit.read(log, len("before\n"), NAMESPACE)
    assert found.of("x/") == Counter({"create pods/binding": 2})
    assert (found.bindings, found.refused_bindings) == (Counter({"p": 1}), 1)


def test_a_peer_is_a_command_with_a_kubeconfig_placeholder() -> None:
    found = systems.peer("mine@my-name=/opt/mine --kubeconfig {kubeconfig} --port {port}")
    assert (found.name, found.scheduler_name, found.agent) == ("mine", "my-name", "mine")
    here = Path("/k")
    words = systems.words(found.scheduler, kubeconfig=here, conf=here, directory=here)
    assert words[:3] == ["/opt/mine", "--kubeconfig", "/k"]
    assert words[4].isdecimal()
    for wrong in ("mine", "mine=", "mine=/opt/mine"):
        with pytest.raises(ValueError, match="--peer"):
            systems.peer(wrong)


JOBS_ONLY = System("j", "/s", "s", "other", job_parts={"a": "/a", "b": "/b"}, only_jobs=True)
PLAYS: dict[str, tuple[System, dict[str, bool]]] = {
    "one that makes pods from Jobs": (
        System("x", "/s", "s", job_parts={"controllers": "/c"}),
        {"4x10@20": True, "jobs-4x10@20": True, "preempt-10x100@100": True},
    ),
    "a peer, which is a scheduler alone": (
        systems.peer("mine@my-name=/opt/mine {kubeconfig}"),
        {"4x10@20": True, "jobs-4x10@20": False, "preempt-10x100@100": False},
    ),
    "one that lets Jobs in and sees nothing else": (
        JOBS_ONLY,
        {"4x10@20": False, "jobs-4x10@20": True, "preempt-10x100@100": False},
    ),
    "the ceiling": (
        systems.built_in("ceiling"),
        {"4x10@20": True, "jobs-4x10@20": True, "preempt-10x100@100": False},
    ),
}


@pytest.mark.parametrize("name", PLAYS)
def test_a_system_runs_the_cases_it_supports(name: str) -> None:
    system, want = PLAYS[name]
    assert {case: system.plays(cases.find(case)) for case in want} == want


def test_controllers_run_only_in_cases_with_jobs() -> None:
    assert JOBS_ONLY.commands(cases.find("4x10@20")) == {"scheduler": "/s"}
    with_jobs = JOBS_ONLY.commands(cases.find("jobs-4x10@20"))
    assert with_jobs == {"scheduler": "/s", "a": "/a", "b": "/b"}


def test_a_job_is_the_same_load_in_both_apis() -> None:
    case = cases.find("jobs-4x10@20")
    theirs = KUEUE_JOB.body(case, "g00000", "default-scheduler")
    (task,) = VOLCANO_JOB.body(case, "g00000", "volcano")["spec"]["tasks"]
    assert theirs["metadata"]["labels"] == {kueue.QUEUE_LABEL: kueue.QUEUE}
    spec = theirs["spec"]
    assert (spec["suspend"], spec["parallelism"], spec["completions"]) == (True, 10, 10)
    pod = spec["template"]["spec"]
    assert pod == {**task["template"]["spec"], "schedulerName": "default-scheduler"}


def test_kueue_has_a_queue_with_quota_in_every_namespace() -> None:
    found = kueue.objects(["a", "b"])
    queues = [body["metadata"] for kind, body in found if kind == kueue.LOCAL_QUEUES]
    assert queues == [{"name": kueue.QUEUE, "namespace": name} for name in "ab"]
    (whole,) = (body["spec"] for kind, body in found if kind == kueue.CLUSTER_QUEUES)
    (group,) = whole["resourceGroups"]
    assert set(group["coveredResources"]) == {"cpu", "memory"}
    assert whole["namespaceSelector"] == {}, "without one it admits no namespace"


def test_a_configuration_template_gets_paths_and_free_ports() -> None:
    here = Path("/d")
    found = yaml.safe_load(systems.filled(kueue.CONF, kubeconfig=here, directory=here))
    assert found["webhook"]["certDir"] == "/d"
    assert found["webhook"]["port"] > 0
    assert found["integrations"] == {"frameworks": ["batch/job"]}


def test_cases_are_named_by_their_sizes() -> None:
    found = cases.find("jobs-4x10@20")
    assert (found.gangs, found.size, found.nodes, found.as_jobs) == (4, 10, 20, True)
    for wrong in ("0x1@1", "many"):
        with pytest.raises(ValueError, match=wrong):
            cases.find(wrong)


@pytest.mark.parametrize("name", ["2x3@4", "jobs-2x3@4"])
def test_the_ceiling_binds_the_created_pods(name: str) -> None:
    case = cases.find(name)
    (gang, _) = case.gang_names()
    make = cases.pods_of_job if case.as_jobs else cases.pods
    made = list(make(case, gang, "volcano"))
    assert [pod["metadata"]["name"] for pod in made] == [case.pod_name(0, i) for i in range(3)]
    labels = made[0]["metadata"]["labels"]
    assert labels.get(cases.JOB_LABEL if case.as_jobs else "gang") == gang


def test_a_small_run_on_real_servers_binds_and_reports_everything(tmp_path: Path) -> None:
    reason = missing(parts_for())
    if reason:
        pytest.skip(reason)
    words = [sys.executable, "-m", "bench.cluster", "--case", "3x4@5", "--rounds", "1", "--cold"]
    done = subprocess.run(
        [*words, "--systems", "hekla", "--out", str(tmp_path), "--patience", "300"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads((tmp_path / "cluster-3x4-on-5.json").read_text())
    (numbers,) = (found["numbers"] for found in body["rounds"]["hekla"])
    assert numbers["bound"] == 12
    assert set(numbers["faults"].values()) == {0}
    assert numbers["calls"]["create pods/binding"] == 12
    assert numbers["cpu_s"]["scheduler"] > 0
    assert dots(tmp_path / "cluster-3x4-on-5.png", plot.COLOURS[0]) > 100, "a line is drawn"


def dots(picture: Path, colour: str) -> int:
    """Return the number of pixels of a colour."""
    shades = imread(picture)[..., :3]
    return int(np.isclose(shades, to_rgb(colour), atol=0.01).all(axis=-1).sum())


def test_lines_are_drawn_each_in_its_colour(tmp_path: Path) -> None:
    file = tmp_path / "lines.png"
    plot.lines(file, "two", "pods", {"rising": [(0, 0), (9, 5)], "level": [(0, 3), (9, 3)]})
    assert [dots(file, colour) > 100 for colour in plot.COLOURS[:3]] == [True, True, False]
