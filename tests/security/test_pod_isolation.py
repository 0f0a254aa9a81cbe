"""A pod is a tenant's code on a shared machine: what it can reach, and what it cannot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS
from hekla.nodeagent import sandbox
from hekla.nodeagent.seccomp import runtime_default
from hekla.nodeagent.uid_ranges import FIRST
from tests.nodeagent.conftest import Machine


async def output(machine: Machine, script: str, name: str = "p", **spec: Any) -> str:
    """Run a shell script in a pod to its end; return its output."""
    namespace = (spec.get("metadata") or {}).get("namespace", "default")
    await machine.run_pod(name, "sh", "-c", script, **spec)
    pod = await machine.ended(name, namespace)
    text = await machine.logs(name, namespace)
    assert pod["status"]["phase"] == "Succeeded", (pod["status"], text)
    return text


async def test_root_of_a_pod_is_nobody_on_the_host(shared: Machine) -> None:
    text = await output(shared, "id -u; cat /proc/self/uid_map; cat /etc/shadow || echo refused")
    lines = text.split("\n")
    assert lines[0] == "0"
    assert lines[1].split() == ["0", str(FIRST), "65536"]
    assert "refused" in text


async def test_private_working_directory_is_refused_with_the_way_out(shared: Machine) -> None:
    assert shared.hidden is not None
    private = shared.hidden.parent / "private"
    private.mkdir(mode=0o700)
    await shared.run_pod("p", "true", container={"workingDir": str(private)})
    pod = await shared.ended("p")
    assert pod["status"]["phase"] == "Failed"
    assert "--pod-user owner" in await shared.logs("p")


async def test_pod_has_no_new_privileges_a_seccomp_filter_and_few_capabilities(
    shared: Machine,
) -> None:
    status = await output(shared, "cat /proc/self/status")
    facts = dict(line.split(":\t") for line in status.splitlines() if ":\t" in line)
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == ("2" if runtime_default() else "0")
    sys_admin, net_admin, mknod = 21, 12, 27
    for mask in (int(facts["CapEff"], 16), int(facts["CapBnd"], 16)):
        assert not any(mask >> number & 1 for number in (sys_admin, net_admin, mknod))


ATTEMPTS = {
    "mounts": "mount -t tmpfs none /mnt",
    "a new user namespace": "unshare --user true",
    "device nodes": "mknod /tmp/disk b 254 0 && head -c1 /tmp/disk",
    "the host name": "hostname evil",
    "the kernel log": "dmesg",
    "the keys": "ls $DATA/pki",
    "the administrator's token": "cat $DATA/pki/admin.token",
    "the stored objects": "cat $DATA/state.db",
    "files of other pods": "ls $DATA/node/claims",
    "cgroups": "ls /sys/fs/cgroup/memory || ls /sys/fs/cgroup/hekla",
    "sysctls": "echo 1 > /proc/sys/kernel/sysrq",
    "sysrq": "echo h > /proc/sysrq-trigger",
    "disks and memory": "ls /dev/vda || ls /dev/sda || ls /dev/mem",
    "system files": "touch /usr/bin/evil || touch /evil || touch /etc/evil",
    "the agent": f"kill -0 {os.getpid()}",
}


@pytest.mark.parametrize("what", ATTEMPTS)
async def test_pod_cannot_reach(shared: Machine, what: str) -> None:
    data = {"env": [{"name": "DATA", "value": str(shared.hidden)}]}
    script = f"if {ATTEMPTS[what]}; then echo reached; else echo refused; fi"
    text = await output(shared, script, container=data)
    assert text.splitlines()[-1] == "refused"


async def test_pod_does_not_inherit_the_variables_of_the_administrator(
    shared: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    text = await output(shared, "env; cat /proc/1/environ | tr '\\0' '\\n'")
    names = {line.partition("=")[0] for line in text.splitlines()}
    assert "AWS_SECRET_ACCESS_KEY" not in names
    assert {"PATH", "LC_TIME", "HOSTNAME", "HOME"} <= names
    assert f"HOME={shared.hidden}/node/pods/" in text


async def test_container_variables_do_not_reach_the_helpers_of_the_set_up(
    shared: Machine, tmp_path: Path
) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    evil.chmod(0o755)
    for name in ("unshare", "sh", "mount", "nsenter", "mv", "python3"):
        (evil / name).write_text(f"#!/bin/sh\necho $0 >> {tmp_path}/ran\n")
        (evil / name).chmod(0o755)
    loader = {"name": "LD_PRELOAD", "value": "/no/such/library.so"}
    variables = [{"name": "PATH", "value": str(evil)}, {"name": "PYTHONPATH", "value": str(evil)}]
    await shared.run_pod("p", "/bin/sh", "-c", "/bin/true", container={"env": [*variables, loader]})
    pod = await shared.ended("p")
    assert pod["status"]["phase"] == "Succeeded"
    assert not (tmp_path / "ran").exists()


async def test_pods_of_two_namespaces_share_no_files_and_no_processes(shared: Machine) -> None:
    for name in ("red", "blue"):
        await shared.client.create(NAMESPACES, {"metadata": {"name": name}})
    claim: dict[str, Any] = {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
        "container": {"volumeMounts": [{"name": "v", "mountPath": "/data"}]},
    }
    write = "echo red > /data/f; echo red > /tmp/f; echo red > /dev/shm/f; stat -c %u /data/f"
    await output(shared, write, metadata={"namespace": "red"}, **claim)
    look = "cat /data/f /tmp/f /dev/shm/f; cat /proc/self/uid_map; ls /proc | grep -c '^[0-9]'"
    text = await output(shared, look + "; true", metadata={"namespace": "blue"}, **claim)
    assert "red" not in text
    bases = {
        name: (shared.directory / "claims" / name / "data").stat().st_uid
        for name in ("red", "blue")
    }
    assert len(set(bases.values())) == 2
    assert min(bases.values()) >= FIRST
    assert int(text.split()[-1]) < 10
    again = await output(shared, "cat /data/f; id -u", "q", metadata={"namespace": "red"}, **claim)
    assert again == "red\n0\n"


async def test_range_of_a_namespace_survives_a_restart_of_the_agent(shared: Machine) -> None:
    first = await output(shared, "cat /proc/self/uid_map", "a")
    await shared.stop_agent()
    shared.start_agent(pod_user="namespace")
    assert await output(shared, "cat /proc/self/uid_map", "b") == first


async def test_existing_claim_is_given_to_its_namespace(shared: Machine) -> None:
    place = shared.directory / "claims" / "default" / "old"
    place.mkdir(parents=True)
    (place / "f").write_text("old")
    (place / "out").symlink_to("/etc/hostname")
    before = os.stat("/etc/hostname").st_uid
    text = await output(
        shared,
        "stat -c %u /data/f; echo new > /data/f; cat /data/f",
        container={"volumeMounts": [{"name": "v", "mountPath": "/data"}]},
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "old"}}],
    )
    assert text == "0\nnew\n"
    assert os.stat("/etc/hostname").st_uid == before


async def test_volumes_belong_to_the_pod(shared: Machine) -> None:
    await shared.client.create(
        SECRETS, {"metadata": {"name": "s", "namespace": "default"}, "stringData": {"k": "key"}}
    )
    await shared.client.create(
        CONFIGMAPS, {"metadata": {"name": "m", "namespace": "default"}, "data": {"f": "map"}}
    )
    script = (
        "cat /s/k /m/f; stat -c '%u %a' /s/k; (echo x > /m/f) || echo read-only;"
        "id -u; id -g; id -G; stat -c %g /e; echo x > /e/f; stat -c '%u %g' /e/f;"
        "echo home > $HOME/f; cat ~/f; echo out >> /dev/stdout; pwd"
    )
    text = await output(
        shared,
        script,
        container={
            "volumeMounts": [
                {"name": "s", "mountPath": "/s"},
                {"name": "m", "mountPath": "/m"},
                {"name": "e", "mountPath": "/e"},
            ]
        },
        volumes=[
            {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
            {"name": "m", "configMap": {"name": "m"}},
            {"name": "e", "emptyDir": {}},
        ],
        securityContext={
            "runAsUser": 1000,
            "runAsGroup": 1001,
            "fsGroup": 2000,
            "supplementalGroups": [3000],
        },
    )
    lines = text.splitlines()
    assert lines[0].startswith("keymap")
    assert "read-only" in text
    tail = ["1000", "1001", "1001 2000 3000", "2000", "1000 2000", "home", "out"]
    assert lines[-8:-1] == tail


async def test_pod_cannot_signal_a_process_of_another_pod(shared: Machine) -> None:
    await shared.run_pod("victim", "sleep", "1000")
    await shared.running("victim")
    text = await output(shared, "kill -9 -1 2>/dev/null; ls /proc | grep -c '^[0-9]'")
    assert int(text.split()[-1]) < 10
    victim = await shared.running("victim")
    assert victim["status"]["phase"] == "Running"


@pytest.mark.parametrize("way", ["root", "user"])
async def test_pod_of_the_owner_does_not_see_keys_cgroups_or_devices(
    shared: Machine, way: sandbox.Isolation
) -> None:
    await shared.stop_agent()
    shared.start_agent(isolate=way)
    script = (
        "id -u; ls $DATA/pki; ls /sys/fs/cgroup/memory; ls /dev/vda /dev/sda /dev/mem;"
        "echo h > /proc/sysrq-trigger; unshare --user true; mount -t tmpfs none /mnt;"
        "cat /proc/self/status"
    )
    data = {"env": [{"name": "DATA", "value": str(shared.hidden)}]}
    text = await output(shared, f"({script}) 2>/dev/null", container=data)
    lines = text.splitlines()
    assert lines[0] == str(os.geteuid())
    assert lines[1].startswith("Name:"), "nothing else was shown"
    assert "NoNewPrivs:\t1" in lines
    assert ("Seccomp:\t2" in lines) == bool(runtime_default())


async def test_read_only_root_leaves_volumes_writable(shared: Machine) -> None:
    text = await output(
        shared,
        "touch /x /etc/x /usr/x; echo ok > /e/f; cat /e/f; echo x > /dev/null; touch /dev/shm/x",
        container={
            "securityContext": {"readOnlyRootFilesystem": True},
            "volumeMounts": [{"name": "e", "mountPath": "/e"}],
        },
        volumes=[{"name": "e", "emptyDir": {}}],
    )
    assert text.count("Read-only file system") == 3
    assert text.endswith("ok\n")


async def test_root_of_a_pod_owns_the_copy_of_a_directory_with_a_new_mount_path(
    shared: Machine,
) -> None:
    """As /root with the keys of the plugin ssh: sshd trusts no home of somebody else."""
    script = (
        "stat -c %u /etc; touch /etc/hekla-new && ls /etc/hekla-new; "
        "cat /etc/shadow || echo refused; cp /etc/shadow /tmp/ || mv /etc/shadow /tmp/copy; "
        "chmod 644 /etc/shadow || echo refused; cat /tmp/copy || echo refused"
    )
    text = await output(
        shared,
        f"({script}) 2>/dev/null",
        container={"volumeMounts": [{"name": "v", "mountPath": "/etc/hekla-test-mount"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    assert text.split() == ["0", "/etc/hekla-new", "refused", "refused", "refused"]
    assert {"hekla-new", "shadow"} & {*os.listdir("/etc")} == {"shadow"}
