"""Pods that run real images: pulled from a registry, in a root file system of their own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tools import debian

from hekla.api.wellknown import RUN_DIRECTORY
from hekla.images.platforms import this_machine
from hekla.images.store import ImageStore
from hekla.images.tree import remove_tree
from hekla.kube.client import Client
from hekla.kube.errors import ProtocolError
from hekla.kube.resources import EVENTS, PODS, RUNTIME_CLASSES, SECRETS
from hekla.nodeagent import sandbox
from hekla.nodeagent.images import Environment, Images
from hekla.nodeagent.security_context import PodUser
from hekla.nodeagent.uid_ranges import user_namespace_support
from hekla.units.objects import Object
from tests.images.builders import BuiltImage, directory, file, image, symlink, tar
from tests.images.registry import LyingRegistry, RealRegistry
from tests.nodeagent.conftest import Machine, state

PASSWD = b"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1001:Ann:/home/ann:/bin/sh\n"
GROUP = b"root:x:0:\nstaff:x:1001:\nvideo:x:44:ann\n"
APPLETS = ("sh", "cat", "ls", "id", "env", "echo", "pwd", "touch", "sleep", "kill", "stat", "mkdir")


@pytest.fixture(scope="session")
def busybox() -> bytes:
    try:
        return debian.static_busybox().read_bytes()
    except debian.Missing as error:
        pytest.skip(str(error))


def build(busybox: bytes, *more: Any, **config: Any) -> BuiltImage:
    """Return an image of two layers with busybox, a user and a setuid program."""
    base = tar(
        directory("bin"),
        file("bin/busybox", busybox, mode=0o755),
        *(symlink(f"bin/{name}", "busybox") for name in APPLETS),
        directory("tmp", mode=0o1777),
        directory("root", mode=0o700),
    )
    top = tar(
        directory("etc"),
        file("etc/passwd", PASSWD),
        file("etc/group", GROUP),
        file("bin/setuid-id", busybox, mode=0o4755),
        directory("home"),
        directory("home/ann", uid=1000, gid=1001),
        file("home/ann/own", b"ann's\n", uid=1000, gid=1001, mode=0o600),
        *more,
    )
    settings = {"Cmd": ["sh", "-c", "echo default"], "Env": ["COLOUR=blue"], **config}
    return image(base, top, config=settings, architecture=this_machine().architecture)


@pytest.fixture
def image_store(tmp_path: Path) -> Iterator[ImageStore]:
    where = tmp_path / "images"
    store = ImageStore(where)
    yield store
    store.close()
    remove_tree(where)


WAYS = [
    pytest.param(("namespace", "root"), id="namespace"),
    pytest.param(("owner", "root"), id="owner"),
    pytest.param(("owner", "user"), id="user-namespace"),
]


@pytest.fixture(params=WAYS)
async def lab(
    request: pytest.FixtureRequest,
    machine: Machine,
    image_store: ImageStore,
    skopeo: str,
    isolation: None,
) -> Machine:
    """A node that runs images, in each way that this machine supports."""
    user, isolate = request.param
    await restart(machine, image_store, skopeo, user, isolate)
    return machine


async def restart(
    machine: Machine,
    image_store: ImageStore,
    skopeo: str,
    user: PodUser = "owner",
    isolate: sandbox.Isolation | None = None,
) -> None:
    if user == "namespace" and (reason := user_namespace_support()):
        pytest.skip(reason)
    if isolate == "root" and sandbox.isolation_support().isolation != "root":
        pytest.skip("needs root")
    await machine.stop_agent()
    machine.start_agent(pod_user=user, isolate=isolate, image_store=image_store, skopeo_path=skopeo)


def waiting(pod: Object) -> Object:
    statuses = pod["status"].get("containerStatuses") or [{}]
    found: Object = (statuses[0].get("state") or {}).get("waiting") or {}
    return found


async def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("timed out")


async def events(machine: Machine, pod: str) -> list[Object]:
    found = (await machine.client.list(EVENTS, namespace="default")).items
    return [each for each in found if each["involvedObject"]["name"] == pod]


async def until_event(machine: Machine, pod: str, reason: str) -> None:
    """Wait for an event: they are written later than the status."""
    for _ in range(600):
        if reason in [each["reason"] for each in await events(machine, pod)]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"no event {reason}")


async def run(machine: Machine, name: str, reference: object, *command: str, **more: Any) -> Object:
    container = {"image": str(reference), **more.pop("container", {})}
    if not command:
        container["command"] = []
    await machine.run_pod(name, *command, container=container, **more)
    return await machine.ended(name)


async def test_pulled_image_runs_with_its_configuration(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    config = {"Entrypoint": ["sh", "-c"], "Cmd": ["pwd; echo $COLOUR $SECRET $PATH; exit 3"]}
    built = build(busybox, WorkingDir="/made/here", **config)
    reference = real.push("configured:1", built)
    os.environ["SECRET"] = "of the host"
    try:
        pod = await run(lab, "p", reference)
    finally:
        del os.environ["SECRET"]
    assert (await lab.logs("p")).splitlines() == [
        "/made/here",
        "blue /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ]
    status = state(pod)
    assert status["state"]["terminated"]["exitCode"] == 3
    assert status["imageID"] == f"{reference.name}@{built.digest}"
    reasons = [each["reason"] for each in await events(lab, "p")]
    assert {"Pulling", "Pulled", "Started"} <= set(reasons)


async def test_container_sees_only_its_own_root(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
    tmp_path: Path,
) -> None:
    reference = real.push("alone:1", build(busybox))
    (tmp_path / "host-file").write_text("of the host")
    script = f"ls /; ls /etc; cat /etc/shadow {tmp_path}/host-file; ls {lab.directory}"
    await run(lab, "p", reference, "sh", "-c", script)
    lines = (await lab.logs("p")).splitlines()
    assert lines[:9] == ["bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "group"]
    assert "of the host" not in lines
    assert "cat: can't open '/etc/shadow': No such file or directory" in lines
    assert f"ls: {lab.directory}: No such file or directory" in lines
    assert not _mounts_below(lab.directory)


def _mounts_below(where: Path) -> list[str]:
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [each for each in mounts if each.startswith(str(where))]


async def test_image_without_a_shell_runs(lab: Machine, real: RealRegistry, busybox: bytes) -> None:
    """As the images of compiled programs: nothing but one file."""
    built = image(
        tar(file("echo", busybox, mode=0o755)),
        config={"Entrypoint": ["/echo"], "Cmd": ["alone"]},
        architecture=this_machine().architecture,
    )
    reference = real.push("alone-in-the-root:1", built)
    await run(lab, "p", reference)
    assert await lab.logs("p") == "alone\n"
    container = {"env": [{"name": "PATH", "value": "/bin:/"}]}
    await run(lab, "path", reference, "echo", "found", container=container)
    assert await lab.logs("path") == "found\n"
    missing = state(await run(lab, "missing", reference, "no-such-program"))
    assert missing["state"]["terminated"]["exitCode"] == 127
    assert "no-such-program: not found" in missing["state"]["terminated"]["message"]


async def test_files_of_the_image_have_their_owners(
    machine: Machine,
    image_store: ImageStore,
    real: RealRegistry,
    skopeo: str,
    busybox: bytes,
) -> None:
    for user in ("namespace", "owner"):
        await restart(machine, image_store, skopeo, user, "root")
        reference = real.push("owners:1", build(busybox, User="ann"))
        script = "id; pwd; echo $HOME; cat /home/ann/own; touch /home/ann/new; touch /new; "
        script += "stat -c '%u:%g %a' / /bin /home/ann /home/ann/new /root"
        await run(machine, user, reference, "sh", "-c", script)
        assert (await machine.logs(user)).splitlines() == [
            "uid=1000(ann) gid=1001(staff) groups=44(video),1001(staff)",
            "/",
            "/home/ann",
            "ann's",
            "touch: /new: Permission denied",
            "0:0 755",
            "0:0 755",
            "1000:1001 755",
            "1000:1001 644",
            "0:0 700",
        ]


async def test_run_as_user_wins_over_the_user_of_the_image(
    machine: Machine,
    image_store: ImageStore,
    real: RealRegistry,
    skopeo: str,
    busybox: bytes,
) -> None:
    await restart(machine, image_store, skopeo, "namespace", "root")
    reference = real.push("users:1", build(busybox, User="ann:root"))
    context = {"securityContext": {"runAsUser": 7, "runAsGroup": 8}}
    await run(machine, "given", reference, "id", container=context)
    assert await machine.logs("given") == "uid=7 gid=8 groups=8\n"
    await run(machine, "image", reference, "id")
    assert await machine.logs("image") == "uid=1000(ann) gid=0(root) groups=0(root)\n"
    context = {"securityContext": {"runAsNonRoot": True}}
    await run(machine, "ann", reference, "id", container=context)
    await machine.run_pod(
        "root", "id", container={"image": str(real.push("root:1", build(busybox))), **context}
    )
    pod = await machine.until("root", lambda p: "runAsNonRoot" in waiting(p).get("message", ""))
    assert waiting(pod)["reason"] == "CreateContainerConfigError"


async def test_current_directory_of_hekla_run_is_for_programs_of_this_machine(
    lab: Machine, real: RealRegistry, busybox: bytes
) -> None:
    reference = real.push("directory:1", build(busybox, WorkingDir="/home"))
    for name, name_of_image, expected in (("h", "host", "/usr\n"), ("i", reference, "/home\n")):
        note = {"annotations": {RUN_DIRECTORY: "/usr"}}
        await run(lab, name, name_of_image, "pwd", metadata={"name": name, **note})
        assert await lab.logs(name) == expected


async def test_unknown_user_of_the_image_is_named(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    reference = real.push("nobody:1", build(busybox, User="ghost"))
    await lab.run_pod("p", "id", container={"image": str(reference)})
    pod = await lab.until("p", lambda p: "'ghost'" in waiting(p).get("message", ""))
    assert waiting(pod)["reason"] == "CreateContainerConfigError"


async def test_restarted_container_gets_a_fresh_root(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    reference = real.push("fresh:1", build(busybox))
    script = "ls /tmp; touch /tmp/left; [ -e /kept/second ] || { touch /kept/second; exit 1; }"
    await run(
        lab,
        "p",
        reference,
        "sh",
        "-c",
        script,
        container={"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]},
        volumes=[{"name": "kept", "emptyDir": {}}],
        restartPolicy="OnFailure",
    )
    assert await lab.logs("p") == ""
    assert await lab.logs("p", previous=True) == ""
    await eventually(lambda: not list(lab.directory.glob("pods/*/containers/*/*.root")))


async def test_two_containers_of_one_image_do_not_share_their_roots(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    reference = str(real.push("two:1", build(busybox)))
    first = {
        "name": "first",
        "image": reference,
        "command": ["sh", "-c", "touch /tmp/first; ls /tmp"],
    }
    await lab.run_pod(
        "p",
        "sh",
        "-c",
        "sleep 0.5; ls /tmp",
        container={"image": reference},
        initContainers=[first],
    )
    await lab.ended("p")
    assert await lab.logs("p", container="first") == "first\n"
    assert await lab.logs("p", container="main") == ""


async def test_read_only_root_has_writable_volumes_only(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    reference = real.push("read-only:1", build(busybox))
    await run(
        lab,
        "p",
        reference,
        "sh",
        "-c",
        "touch /tmp/x; touch /data/y && ls /data",
        container={
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        },
        volumes=[{"name": "data", "emptyDir": {}}],
    )
    assert (await lab.logs("p")).splitlines() == ["touch: /tmp/x: Read-only file system", "y"]


async def test_setuid_program_of_the_image_gains_nothing(
    machine: Machine,
    image_store: ImageStore,
    real: RealRegistry,
    skopeo: str,
    busybox: bytes,
) -> None:
    for user in ("namespace", "owner"):
        await restart(machine, image_store, skopeo, user, "root")
        reference = real.push("setuid:1", build(busybox, User="ann"))
        script = "busybox ln -s /bin/setuid-id /home/ann/id; /home/ann/id -u"
        await run(machine, user, reference, "sh", "-c", script)
        assert await machine.logs(user) == "1000\n"


async def test_link_of_the_image_does_not_lead_a_mount_to_the_host(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
    tmp_path: Path,
) -> None:
    links = [
        symlink("proc", str(tmp_path)),
        symlink("dev", "../../../../../../../../dev"),
        symlink("etc/hosts", f"{tmp_path}/hosts"),
        symlink("data", f"{tmp_path}/target"),
    ]
    reference = real.push("links:1", build(busybox, *links, WorkingDir="/data/work"))
    await run(
        lab,
        "p",
        reference,
        "sh",
        "-c",
        "pwd; ls /proc/self/status; cat /etc/hosts | busybox wc -l; touch /data/x",
        container={"volumeMounts": [{"name": "v", "mountPath": "/data/v"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    lines = (await lab.logs("p")).splitlines()
    assert lines[1] == "/proc/self/status"
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "hosts").exists()


async def test_missing_image_waits_with_the_reasons_of_the_kubelet(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    name = f"{real.address}/late-{lab.agent.pod_user}-{lab.agent.isolates}:1"  # type: ignore[union-attr]
    await lab.run_pod("p", "echo", "at last", container={"image": name})
    pod = await lab.until("p", lambda p: waiting(p).get("reason") == "ErrImagePull")
    assert "check the name and the tag" in waiting(pod)["message"]
    pod = await lab.until("p", lambda p: waiting(p).get("reason") == "ImagePullBackOff")
    assert "Back-off pulling image" in waiting(pod)["message"]
    real.push(name.partition("/")[2], build(busybox))
    await lab.ended("p")
    assert await lab.logs("p") == "at last\n"


async def test_invalid_name_and_policy_never_are_told(
    machine: Machine,
    image_store: ImageStore,
    skopeo: str,
) -> None:
    await restart(machine, image_store, skopeo)
    await machine.run_pod("bad", "true", container={"image": "Not/A/Name:1"})
    pod = await machine.until("bad", lambda p: bool(waiting(p).get("message")))
    assert waiting(pod)["reason"] == "InvalidImageName"
    never = {"image": "127.0.0.1:1/x:1", "imagePullPolicy": "Never"}
    await machine.run_pod("never", "true", container=never)
    pod = await machine.until("never", lambda p: bool(waiting(p).get("message")))
    assert waiting(pod)["reason"] == "ErrImageNeverPull"


async def test_without_skopeo_the_status_says_what_to_do(
    machine: Machine, image_store: ImageStore, isolation: None
) -> None:
    await restart(machine, image_store, "no-such-skopeo")
    await machine.run_pod("p", "true", container={"image": "alien:1"})
    pod = await machine.until("p", lambda p: bool(waiting(p).get("message")))
    assert waiting(pod)["reason"] == "ImageNotMapped"
    assert "install skopeo" in waiting(pod)["message"]


async def test_private_registry_needs_the_pull_secret(
    machine: Machine,
    image_store: ImageStore,
    lying: LyingRegistry,
    skopeo: str,
    busybox: bytes,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "none"))
    await restart(machine, image_store, skopeo)
    lying.login = "ann:secret"
    reference = lying.put("1", build(busybox))
    await machine.run_pod("without", "echo", "hello", container={"image": str(reference)})
    pod = await machine.until("without", lambda p: waiting(p).get("reason") == "ErrImagePull")
    assert "pull secret" in waiting(pod)["message"]
    assert "secret:" not in waiting(pod)["message"]
    auths = {"auths": {lying.address: {"auth": base64.b64encode(b"ann:secret").decode()}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    kind = "kubernetes.io/dockerconfigjson"
    await machine.client.create(
        SECRETS, {"metadata": {"name": "s", "namespace": "default"}, "type": kind, "data": data}
    )
    await machine.run_pod(
        "with",
        "echo",
        "hello",
        container={"image": str(reference)},
        imagePullSecrets=[{"name": "s"}],
    )
    await machine.ended("with")
    assert await machine.logs("with") == "hello\n"


async def test_gang_pulls_once_and_images_in_use_are_kept(
    machine: Machine,
    image_store: ImageStore,
    lying: LyingRegistry,
    skopeo: str,
    busybox: bytes,
) -> None:
    await restart(machine, image_store, skopeo)
    built = build(busybox)
    reference = str(lying.put("1", built))
    for number in range(4):
        await machine.run_pod(f"p{number}", "sleep", "600", container={"image": reference})
    for number in range(4):
        await machine.running(f"p{number}")
    for digest in built.layer_digests:
        assert lying.requests.count(f"blobs/{digest}") == 1
    assert image_store.collect(0).images == ()
    pods = (await machine.client.list(PODS, namespace="default")).items
    assert image_store.pins().keys() == {pod["metadata"]["uid"] for pod in pods}
    for number in range(4):
        await machine.client.delete(PODS, f"p{number}", namespace="default", grace_period_s=0)
    await eventually(lambda: not image_store.pins())
    assert image_store.collect(0).images == (built.digest,)


async def test_deleted_pod_does_not_wait_for_its_pull(
    machine: Machine,
    image_store: ImageStore,
    lying: LyingRegistry,
    skopeo: str,
    busybox: bytes,
) -> None:
    await restart(machine, image_store, skopeo)
    built = build(busybox)
    reference = str(lying.put("1", built))
    lying.stalled = {f"blobs/{digest}" for digest in built.layer_digests}
    await machine.run_pod("p", "true", container={"image": reference})
    pod = await machine.until("p", lambda p: " MiB" in waiting(p).get("message", ""))
    assert waiting(pod)["reason"] == "ContainerCreating"
    await machine.run_pod("other", "true")
    assert (await machine.ended("other"))["status"]["phase"] == "Succeeded"
    await machine.client.delete(PODS, "p", namespace="default", grace_period_s=0)
    assert machine.agent is not None
    agent = machine.agent
    await eventually(lambda: len(agent._workers) == 1)


async def test_restarted_agent_adopts_the_container_of_an_image(
    machine: Machine,
    image_store: ImageStore,
    real: RealRegistry,
    skopeo: str,
    busybox: bytes,
) -> None:
    await restart(machine, image_store, skopeo)
    reference = real.push("adopted:1", build(busybox, User="ann"))
    script = "while [ ! -e /home/ann/go ]; do sleep 0.1; done; exit 5"
    await machine.run_pod("p", "sh", "-c", script, container={"image": str(reference)})
    pod = await machine.running("p")
    await restart(machine, image_store, skopeo)
    assert machine.agent is not None
    await machine.agent._until_adopted()
    assert image_store.pins().keys() == {pod["metadata"]["uid"]}
    worker = machine.agent._workers[pod["metadata"]["uid"]]
    script = "id -un; echo $COLOUR; touch /home/ann/go"
    line, variables = await worker.runtime.exec_command("main", ["sh", "-c", script])
    child = await asyncio.create_subprocess_exec(
        *line, env=variables, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    assert output == b"ann\nblue\n"
    assert state(await machine.ended("p"))["state"]["terminated"]["exitCode"] == 5


async def test_stop_signal_of_the_image_ends_the_container(
    lab: Machine,
    real: RealRegistry,
    busybox: bytes,
) -> None:
    reference = real.push("stop:1", build(busybox, StopSignal="SIGUSR1"))
    script = "trap 'echo got it; exit 0' USR1; trap 'echo term' TERM; echo up; "
    script += "while true; do sleep 0.1; done"
    await lab.run_pod("p", "sh", "-c", script, container={"image": str(reference)})
    await lab.running("p")
    logs = [each / "containers/main/0.log" for each in lab.directory.glob("pods/*")]
    await eventually(lambda: logs[0].read_text() == "up\n")
    assert lab.agent is not None
    await lab.agent.abort(20)
    assert await lab.logs("p") == "up\ngot it\n"


async def test_runtime_class_decides_between_programs_and_images(
    machine: Machine, image_store: ImageStore, real: RealRegistry, skopeo: str, busybox: bytes
) -> None:
    await restart(machine, image_store, skopeo)
    reference = real.push("classes:1", build(busybox))
    table = Images([(str(reference), Environment())])
    await machine.stop_agent()
    machine.start_agent(images=table, image_store=image_store, skopeo_path=skopeo)
    for name, spec, want in (
        ("mapped", {}, "host\n"),
        ("process", {"runtimeClassName": "process"}, "host\n"),
        ("oci", {"runtimeClassName": "oci"}, "image\n"),
    ):
        script = "[ -e /bin/setuid-id ] && echo image || echo host"
        await run(machine, name, reference, "sh", "-c", script, **spec)
        assert await machine.logs(name) == want
    other = {"image": str(real.push("other:1", build(busybox)))}
    await machine.run_pod("p", "true", container=other, runtimeClassName="process")
    pod = await machine.until("p", lambda p: bool(waiting(p).get("message")))
    assert waiting(pod)["reason"] == "ImageNotMapped"


async def test_handler_that_this_node_lacks_is_named(machine: Machine) -> None:
    kata = {"metadata": {"name": "vm"}, "handler": "kata"}
    await machine.client.create(RUNTIME_CLASSES, kata)
    await machine.run_pod("p", "true", runtimeClassName="vm")
    pod = await machine.until("p", lambda p: bool(waiting(p).get("message")))
    assert waiting(pod)["reason"] == "FailedCreatePodSandBox"
    assert 'no runtime for "kata" is configured' in waiting(pod)["message"]
    assert "oci" in waiting(pod)["message"]
    await until_event(machine, "p", "FailedCreatePodSandBox")


async def test_pod_starts_although_its_class_could_not_be_read_at_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = Client.find, [ProtocolError("no answer")]

    async def find(client: Client, resource: Any, name: str, **options: Any) -> Any:
        if resource == RUNTIME_CLASSES and failures:
            raise failures.pop()
        return await real(client, resource, name, **options)

    monkeypatch.setattr(Client, "find", find)
    await machine.run_pod("p", "true", runtimeClassName="process")
    pod = await machine.until("p", lambda p: bool(waiting(p).get("message")))
    assert waiting(pod)["reason"] == "CreateContainerConfigError"
    assert "RuntimeClass 'process' cannot be read: no answer" in waiting(pod)["message"]
    assert (await machine.ended("p"))["status"]["phase"] == "Succeeded"
