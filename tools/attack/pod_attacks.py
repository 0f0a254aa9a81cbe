"""What a tenant's pods try on the machine.

A hostile pod prints what it could read and do. The run fetches its log and searches it for secrets
of others and for the word of success.

Note: a pod that escapes must not harm the machine. So it looks whether it could write or signal,
and does not; the clock is set to the time it has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

ESCAPED: Final = "ESCAPED"
"""A pod prints it if it could do what must not be possible."""


@dataclass(frozen=True, slots=True)
class HostilePod:
    name: str
    script: str
    fields: Any = None
    """Fields of the pod's spec."""
    container: Any = None
    """Fields of the container."""


def scripts(data_dir: str) -> list[HostilePod]:
    """Return pods that the API admits; what they do has to fail."""
    return [
        HostilePod(
            "files",
            f"cat {data_dir}/pki/* {data_dir}/kubeconfig {data_dir}/state.db* /etc/shadow "
            f"/root/.ssh/* 2>/dev/null; find {data_dir} -type f 2>/dev/null | head -50 | "
            "while read f; do cat \"$f\" 2>/dev/null; done; find / -name '*.token' -readable "
            '2>/dev/null | head -20 | while read f; do cat "$f"; done',
        ),
        HostilePod(
            "processes",
            "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; cat /proc/*/cmdline 2>/dev/null; "
            "for p in /proc/[0-9]*; do ls -l $p/root/ $p/cwd/ 2>/dev/null; "
            "cat $p/root/etc/shadow 2>/dev/null; done",
        ),
        HostilePod("environment", "env; cat /proc/1/environ | tr '\\0' '\\n'"),
        HostilePod(
            "mounts",
            "mount -t tmpfs none /mnt 2>/dev/null && echo ESCAPED; "
            "umount /proc 2>/dev/null && echo ESCAPED; "
            "mount --bind / /tmp 2>/dev/null && echo ESCAPED",
        ),
        HostilePod(
            "namespaces",
            "unshare -U true 2>/dev/null && echo ESCAPED; "
            "unshare -r -m true 2>/dev/null && echo ESCAPED; "
            "nsenter -t 1 -m -p true 2>/dev/null && cat /etc/shadow",
        ),
        HostilePod(
            "devices",
            "mknod /tmp/disk b 8 0 2>/dev/null && echo ESCAPED; mknod /tmp/mem c 1 1 2>/dev/null "
            "&& echo ESCAPED; head -c 10 /dev/mem /dev/kmem /dev/sda /dev/vda 2>/dev/null "
            "&& echo ESCAPED; ls /dev | grep -E '^nvidia[0-9]' && echo ESCAPED",
        ),
        HostilePod(
            "cgroups",
            "find /sys/fs/cgroup -writable -type f 2>/dev/null | head -3 | grep . && echo ESCAPED",
        ),
        HostilePod(
            "identity",
            "grep -qE '^CapEff:.*[1-9a-f]' /proc/self/status; "
            "grep -q 'NoNewPrivs:.1' /proc/self/status || echo ESCAPED; "
            "grep -q 'Seccomp:.2' /proc/self/status || echo ESCAPED; "
            "awk '$1 == 0 && $2 == 0 {print \"ESCAPED\"}' /proc/self/uid_map",
        ),
        HostilePod(
            "kernel",
            "for f in kernel/sysrq kernel/core_pattern kernel/modprobe vm/drop_caches; do "
            "test -w /proc/sys/$f && echo ESCAPED $f; done; dmesg >/dev/null 2>&1 && echo ESCAPED; "
            "test -w /proc/sysrq-trigger && echo ESCAPED; python3 -c 'import time; "
            "time.clock_settime(time.CLOCK_REALTIME, time.time())' 2>/dev/null && echo ESCAPED",
        ),
        HostilePod(
            "write",
            "for d in /etc /usr /bin /var /opt /boot /lib /srv /home /etc/hosts /etc/passwd "
            "/var/spool/cron; do test -w $d && echo ESCAPED $d; done; "
            "find /root -maxdepth 2 -writable ! -type l 2>/dev/null | head -1 | grep . "
            "&& echo ESCAPED; find /root -maxdepth 2 -type f ! -perm -o+r -readable 2>/dev/null "
            "| head -1 | grep . && echo ESCAPED",
        ),
        HostilePod(
            "path",
            "env",
            container={
                "env": [
                    {"name": "PATH", "value": "/tmp/evil:/usr/bin:/bin"},
                    {"name": "LD_PRELOAD", "value": "/tmp/evil.so"},
                    {"name": "HEKLA_UP", "value": "/etc/hekla-attack"},
                    {"name": "HEKLA_CGROUPS", "value": "/sys/fs/cgroup"},
                    {"name": "ENV", "value": "/tmp/evil.sh"},
                ]
            },
        ),
        HostilePod(
            "signals",
            "for p in /proc/[0-9]*; do p=${p#/proc/}; "
            "tr '\\0' ' ' < /proc/$p/cmdline 2>/dev/null | grep -q 'hekla[.]cli' && "
            "kill -0 $p 2>/dev/null && echo ESCAPED $p; done",
        ),
        HostilePod(
            "memory",
            "python3 -c 'x = []\nwhile True: x.append(bytearray(1 << 24))'",
            container={"resources": {"limits": {"memory": "128Mi"}}},
        ),
        HostilePod(
            "forks",
            "f() { f | f & }; f; sleep 3",
            container={"resources": {"limits": {"memory": "256Mi", "hekla.io/processes": "200"}}},
        ),
        HostilePod("output", "yes hostile | head -c 60000000; printf '\\033]0;owned\\007'"),
        HostilePod(
            "disk",
            "dd if=/dev/zero of=/data/full bs=1M count=200 2>/dev/null; sleep 20",
            fields={"volumes": [{"name": "data", "emptyDir": {"sizeLimit": "10Mi"}}]},
            container={"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
        ),
        HostilePod(
            "links",
            "ln -sfn / /data/a; ln -sfn /etc /data/b; cat /sub/shadow 2>/dev/null; ls /sub",
            fields={"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "loot"}}]},
            container={
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "data", "mountPath": "/sub", "subPath": "b"},
                ]
            },
        ),
    ]


def refused(victim: str, node: str) -> list[HostilePod]:
    """Return pods that must be refused, by the API or by the node."""
    host = {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    mounted = {"volumeMounts": [{"name": "v", "mountPath": "/host"}]}
    read = "cat /host/etc/shadow; echo ESCAPED"

    def claim(name: str) -> Any:
        return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}

    def secured(**context: Any) -> Any:
        return {"securityContext": context}

    return [
        HostilePod("host-path", read, host, mounted),
        HostilePod("host-network", "echo ESCAPED", {"hostNetwork": True}),
        HostilePod("host-pid", "echo ESCAPED", {"hostPID": True}),
        HostilePod("host-ipc", "echo ESCAPED", {"hostIPC": True}),
        HostilePod("privileged", "echo ESCAPED", None, secured(privileged=True)),
        HostilePod(
            "capable", "echo ESCAPED", None, secured(capabilities={"add": ["SYS_ADMIN"]})
        ),
        HostilePod(
            "unconfined", "echo ESCAPED", None, secured(seccompProfile={"type": "Unconfined"})
        ),
        HostilePod("proc-mount", "echo ESCAPED", None, secured(procMount="Unmasked")),
        HostilePod("claim-path", read, claim("../../../pki"), mounted),
        HostilePod("claim-other", read, claim(f"../{victim}/treasure"), mounted),
        HostilePod(
            "mount-lines", read, {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/a\nrw\t/etc\t/host"}]},
        ),
        HostilePod(
            "sub-path", read, {"volumes": [{"name": "v", "emptyDir": {}}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/host", "subPath": "../../../.."}]},
        ),
        HostilePod("node-name", "echo ESCAPED", {"nodeName": node}),
        HostilePod("too-patient", "echo ESCAPED", {"terminationGracePeriodSeconds": 10**15}),
        HostilePod(
            "probe-lines", "sleep 5", None,
            {"readinessProbe": {"httpGet": {"path": "/ HTTP/1.1\r\nX: y", "port": 80}}},
        ),
    ]  # fmt: skip


def manifest(pod: HostilePod, queue: str, draw: random.Random) -> Any:
    """Return the Pod object."""
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", pod.script],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    extra = dict(pod.container or {})
    if "resources" in extra:
        requests = container["resources"]
        container["resources"] = {**requests, **extra.pop("resources")}  # type: ignore[dict-item]
    return {
        "metadata": {
            "name": f"{pod.name}-{draw.randrange(10**9)}",
            "annotations": {"scheduling.volcano.sh/queue-name": queue},
        },
        "spec": {
            "schedulerName": "volcano",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "activeDeadlineSeconds": 60,
            **(pod.fields or {}),
            "containers": [{**container, **extra}],
        },
    }
