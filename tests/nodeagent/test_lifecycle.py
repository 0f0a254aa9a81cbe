"""Pure decisions about a pod's lifecycle."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hekla.nodeagent import lifecycle
from hekla.nodeagent.lifecycle import (
    ContainerRun,
    PodFinished,
    PodRecord,
    PodSuspended,
    RequeueAt,
    StartContainer,
    StopContainer,
    next_step,
)
from hekla.nodeagent.status import container_status
from hekla.units.objects import Object


def pod(*mains: str, inits: tuple[str | Object, ...] = (), **spec: Any) -> Object:
    containers = [{"name": name} for name in mains or ("main",)]
    first = [c if isinstance(c, dict) else {"name": c} for c in inits]
    return {"spec": {"containers": containers, "initContainers": first, **spec}}


def sidecar(name: str) -> Object:
    return {"name": name, "restartPolicy": "Always"}


class Machine:
    """Applies effects, and lets containers end."""

    def __init__(self, of: Object) -> None:
        self.pod = of
        self.record = PodRecord(accepted_at=0.0)
        self.now = 0.0

    def step(self) -> list[lifecycle.Effect]:
        """Decide and apply until no container is started."""
        effects: list[lifecycle.Effect] = []
        while True:
            more = next_step(self.pod, self.record, self.now)
            self._perform(more)
            effects = [e for e in effects if isinstance(e, StartContainer)] + more
            if not any(isinstance(effect, StartContainer) for effect in more):
                return effects

    def _perform(self, effects: list[lifecycle.Effect]) -> None:
        for effect in effects:
            match effect:
                case StartContainer(name):
                    known = self.record.of(name)
                    known.last, known.current = known.current, ContainerRun(known.runs, self.now)
                    known.started = known.ready = True
                    known.waiting_reason = ""
                case StopContainer(name):
                    self.record.of(name).stopping = True

    def end(self, name: str, code: int = 0) -> list[lifecycle.Effect]:
        known = self.record.of(name)
        assert known.current is not None
        known.current.exit_code, known.current.finished_at = code, self.now
        lifecycle.record_exit(known, self.now)
        return self.step()


def test_containers_start_together_and_the_pod_succeeds_when_all_did() -> None:
    machine = Machine(pod("a", "b", restartPolicy="Never"))
    assert machine.step() == [StartContainer("a"), StartContainer("b")]
    assert machine.end("a") == []
    assert machine.end("b") == [PodFinished("Succeeded")]


def test_one_failure_fails_a_pod_with_restart_policy_never() -> None:
    machine = Machine(pod("a", "b", restartPolicy="Never"))
    machine.step()
    machine.end("a", 3)
    assert machine.end("b") == [PodFinished("Failed")]


def test_init_containers_run_in_order_before_the_main_containers() -> None:
    machine = Machine(pod("main", inits=("one", "two"), restartPolicy="Never"))
    assert machine.step() == [StartContainer("one")]
    assert machine.end("one") == [StartContainer("two")]
    assert machine.end("two") == [StartContainer("main")]


def test_failing_init_container_fails_the_pod_or_is_restarted() -> None:
    never = Machine(pod("main", inits=("one",), restartPolicy="Never"))
    never.step()
    assert never.end("one", 1) == [PodFinished("Failed")]
    assert "init container 'one' failed" in never.record.failed_message
    always = Machine(pod("main", inits=("one",), restartPolicy="Always"))
    always.step()
    assert always.end("one", 1) == [StartContainer("one")]
    assert always.end("one", 0) == [StartContainer("main")]


def test_sidecar_runs_beside_and_stops_after_the_main_containers() -> None:
    machine = Machine(pod("main", inits=(sidecar("proxy"),), restartPolicy="Never"))
    assert machine.step() == [StartContainer("proxy"), StartContainer("main")]
    assert machine.end("main") == [StopContainer("proxy")]
    assert machine.end("proxy", 143) == [PodFinished("Succeeded")]


def test_sidecar_that_has_not_started_delays_the_next_containers() -> None:
    machine = Machine(pod("main", inits=(sidecar("proxy"),), restartPolicy="Never"))
    machine.record.of("proxy").current = ContainerRun(0, 0.0)
    assert next_step(machine.pod, machine.record, 0.0) == []


def test_on_failure_restarts_only_failures() -> None:
    machine = Machine(pod("a", "b", restartPolicy="OnFailure"))
    machine.step()
    assert machine.end("a", 1) == [StartContainer("a")]
    assert machine.end("b", 0) == []
    assert machine.end("a", 0) == [PodFinished("Succeeded")]
    assert machine.record.of("a").restarts == 1


def test_restarts_back_off_and_a_long_run_resets_the_back_off() -> None:
    machine = Machine(pod(restartPolicy="Always"))
    machine.step()
    assert machine.end("main", 1) == [StartContainer("main")]
    waits = []
    for _ in range(7):
        (wake,) = machine.end("main", 1)
        assert isinstance(wake, RequeueAt)
        waits.append(wake.at - machine.now)
        assert machine.record.of("main").waiting_reason == "CrashLoopBackOff"
        machine.now = wake.at
        assert machine.step() == [StartContainer("main")]
    assert waits == [10, 20, 40, 80, 160, 300, 300]
    machine.now += lifecycle.BACKOFF_RESET_S
    assert machine.end("main", 1) == [StartContainer("main")]


def test_run_that_just_ended_is_the_previous_one_while_its_container_waits() -> None:
    machine = Machine(pod(restartPolicy="Always"))
    machine.step()
    machine.end("main", 1)
    machine.end("main", 2)
    known = machine.record.of("main")
    assert known.waiting_reason == "CrashLoopBackOff"
    assert known.previous is not None
    assert (known.previous.attempt, known.previous.exit_code) == (1, 2)
    status = container_status({"name": "main", "image": "host"}, known, True)
    assert status["lastState"]["terminated"]["exitCode"] == 2


def suspended(machine: Machine, *names: str, code: int = 143) -> None:
    """Shut the node down; the running containers end."""
    machine.record.shutdown_at = machine.now
    assert machine.step() == [StopContainer(name) for name in names]
    effects: list[lifecycle.Effect] = []
    for name in names:
        effects = machine.end(name, code)
    assert effects == [PodSuspended()]


def test_container_that_a_shutdown_stopped_starts_again_and_is_no_failure() -> None:
    machine = Machine(pod(restartPolicy="Never"))
    machine.step()
    suspended(machine, "main")
    main = machine.record.of("main")
    status = container_status({"name": "main", "image": "host"}, main, True)
    assert status["state"]["waiting"]["reason"] == "NodeShutdown"
    assert status["lastState"]["terminated"]["exitCode"] == 143
    assert lifecycle.resume(machine.pod, machine.record)
    assert machine.step() == [StartContainer("main")]
    assert (main.restarts, main.failures) == (1, 0)
    assert machine.end("main", 0) == [PodFinished("Succeeded")]


def test_container_that_ends_with_code_0_during_a_shutdown_starts_again() -> None:
    machine = Machine(pod(restartPolicy="Never"))
    machine.step()
    suspended(machine, "main", code=0)
    assert lifecycle.resume(machine.pod, machine.record)
    assert machine.step() == [StartContainer("main")]


def test_init_containers_run_again_after_a_shutdown_and_finished_containers_do_not() -> None:
    machine = Machine(pod("a", "b", inits=("prep",), restartPolicy="Never"))
    machine.step()
    machine.end("prep", 0)
    machine.end("a", 0)
    suspended(machine, "b")
    assert lifecycle.resume(machine.pod, machine.record)
    assert machine.step() == [StartContainer("prep")]
    assert machine.end("prep", 0) == [StartContainer("b")]


def test_pod_that_was_about_to_finish_finishes_during_a_shutdown() -> None:
    machine = Machine(pod(inits=(sidecar("proxy"),), restartPolicy="Never"))
    machine.step()
    assert machine.end("main", 0) == [StopContainer("proxy")]
    machine.record.shutdown_at = machine.now
    assert machine.end("proxy", 143) == [PodFinished("Succeeded")]


def test_pod_that_is_deleted_during_a_shutdown_is_not_resumed() -> None:
    machine = Machine(pod(restartPolicy="Never"))
    machine.step()
    machine.record.stop_asked_at = machine.record.shutdown_at = machine.now
    assert machine.step() == [StopContainer("main")]
    assert machine.end("main", 143) == [PodFinished("Failed")]
    assert not lifecycle.resume(machine.pod, machine.record)
    assert machine.step() == [PodFinished("Failed")]


def test_run_that_ended_with_the_machine_starts_again() -> None:
    machine = Machine(pod(restartPolicy="Never"))
    machine.step()
    lifecycle.record_lost_run(machine.record.of("main"), 137, machine.now)
    assert lifecycle.resume(machine.pod, machine.record)
    assert machine.step() == [StartContainer("main")]


def test_failed_container_is_not_resumed() -> None:
    machine = Machine(pod(restartPolicy="Never"))
    machine.step()
    assert machine.end("main", 3) == [PodFinished("Failed")]
    assert not lifecycle.resume(machine.pod, machine.record)
    assert machine.step() == [PodFinished("Failed")]


def test_pod_past_its_active_deadline_is_stopped_and_fails() -> None:
    machine = Machine(pod(restartPolicy="Always", activeDeadlineSeconds=60))
    assert machine.step() == [StartContainer("main"), RequeueAt(60.0)]
    machine.now = 60.0
    assert machine.step() == [StopContainer("main")]
    assert machine.end("main", 143) == [PodFinished("Failed")]
    assert machine.record.failed_reason == "DeadlineExceeded"


def test_stopped_pod_stops_main_containers_first_then_sidecars_in_reverse() -> None:
    machine = Machine(pod("main", inits=(sidecar("a"), sidecar("b")), restartPolicy="Always"))
    machine.step()
    machine.record.stop_asked_at = 0.0
    assert machine.step() == [StopContainer("main")]
    assert machine.step() == []
    assert machine.end("main", 143) == [StopContainer("b")]
    assert machine.end("b", 143) == [StopContainer("a")]
    assert machine.end("a", 143) == [PodFinished("Failed")]


@given(data=st.data())
def test_pod_finishes_once_and_nothing_runs_afterwards(data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(["Never", "OnFailure"]))
    inits = data.draw(st.lists(st.sampled_from(["i", "s"]), max_size=3))
    first = [sidecar(f"s{n}") if kind == "s" else {"name": f"i{n}"} for n, kind in enumerate(inits)]
    mains = [f"m{n}" for n in range(data.draw(st.integers(1, 3)))]
    machine = Machine(pod(*mains, inits=tuple(first), restartPolicy=policy))
    failures_left = 6
    for _ in range(200):
        effects = machine.step()
        if any(isinstance(effect, PodFinished) for effect in effects):
            assert not any(known.is_running for known in machine.record.containers.values())
            assert machine.step() == effects, "a finished pod stays finished"
            return
        running = [n for n, known in machine.record.containers.items() if known.is_running]
        stopping = [n for n in running if machine.record.of(n).stopping]
        wakes = [effect.at for effect in effects if isinstance(effect, RequeueAt)]
        candidates = stopping or [n for n in running if not n.startswith("s")]
        if not candidates:
            assert wakes, "nothing runs or waits, but the pod has not finished"
            machine.now = max(machine.now, min(wakes))
            continue
        name = data.draw(st.sampled_from(sorted(candidates)))
        code = 0 if failures_left == 0 else data.draw(st.sampled_from([0, 0, 1]))
        failures_left -= code
        known = machine.record.of(name)
        assert known.current is not None
        known.current.exit_code, known.current.finished_at = code, machine.now
        lifecycle.record_exit(known, machine.now)
    raise AssertionError("the pod never came to its end")
