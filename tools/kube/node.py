"""One node with real containers: containerd and a kubelet, in namespaces of their own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hekla.kube.resources import NODES
from tools import debian
from tools.kube import guard, images
from tools.kube.gobuild import ensure
from tools.kube.parts import CNI, CONTAINERD, CTR, KUBELET, SHIM

if TYPE_CHECKING:
    from tools.kube.kubelets import KubeletCluster

DNS_ADDRESS = "10.96.0.10"
DOMAIN = "cluster.local"
PAUSE_IMAGE = "localhost/pause:1"
_ROOT = "/var/lib/kubelet"  # short: names of sockets are limited to 107 characters
_SOCKET = "/run/containerd/containerd.sock"
_CONTAINERD_CONFIG = """\
version = 3
root = "{root}"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{cni_programs}"]
    conf_dir = "{cni_configuration}"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = false
      BinaryName = "{runc}"
[plugins.'io.containerd.cri.v1.images']
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
"""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """What a kubelet offers, and when it evicts."""

    cpus: int = 2
    """Allocatable. The machine has at least as many."""
    eviction_hard: Mapping[str, str] = field(
        default_factory=lambda: {
            "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"
        }
    )  # fmt: skip
    eviction_soft: Mapping[str, str] = field(default_factory=dict)
    """The same after one second. It may be more than the node has, and is not subtracted."""
    labels: Mapping[str, str] = field(default_factory=dict)


class Node:
    """A node of a cluster; its kubelet can be stopped and started again."""

    def __init__(
        self, cluster: KubeletCluster, name: str, number: int, settings: NodeSettings
    ) -> None:
        self.name = name
        self.address = f"10.99.0.{10 + number}"
        self._cluster = cluster
        self._subnet = f"10.77.{number}.0/24"
        self._settings = settings
        self._directory = cluster.directory / name
        self._init = 0

    def start(self) -> None:
        """Start the namespaces, containerd and the kubelet."""
        processes = self._cluster.processes
        self._write_files()
        cgroup = f"{self._cluster.cgroup}/{self.name}"
        guard.make_cgroups(cgroup)
        processes.start(self.name, [*self._cluster.entry(), *guard.new_init()])
        self._init = self._cluster.await_init(self.name)
        self._mount()
        programs = self._folder("programs")
        path = f"PATH={programs}:{os.environ['PATH']}"
        configuration = self._directory / "containerd.toml"
        processes.start(
            f"{self.name}.containerd",
            [*self._entry(), "env", path, programs / "containerd", "-c", configuration],
        )
        processes.wait_for(f"{self.name}.containerd", self._has_runtime)
        self._import_pause()
        self.start_kubelet()

    def stop(self) -> None:
        """Kill everything of the node at once, as a power cut does."""
        if self._init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._init, signal.SIGKILL)
            for name in (self._kubelet, f"{self.name}.containerd", self.name):
                self._cluster.processes.stop(name)
            self._init = 0

    # --- the kubelet --------------------------------------------------------------------------

    @property
    def _kubelet(self) -> str:
        return f"{self.name}.kubelet"

    def start_kubelet(self, **changes: Any) -> None:
        """Start the kubelet, with other settings than before if there are `changes`."""
        self._settings = replace(self._settings, **changes)
        here = self._directory
        configuration = here / "kubelet.yaml"
        configuration.write_text(yaml.safe_dump(self._kubelet_configuration()))
        labels = ",".join(f"{key}={value}" for key, value in self._settings.labels.items())
        self._cluster.processes.start(
            self._kubelet,
            [
                *self._entry(), ensure(KUBELET), "--config", configuration,
                "--kubeconfig", self._cluster.server_kubeconfig,
                "--root-dir", _ROOT, "--cert-dir", self._folder("certificates"),
                "--hostname-override", self.name, "--node-ip", self.address,
                f"--node-labels={labels}",
            ],
        )  # fmt: skip

    def kill_kubelet(self) -> None:
        """Kill the kubelet; containerd and the containers run on."""
        for child in guard.children(self._cluster.processes.pids().get(self._kubelet, 0)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._cluster.processes.stop(self._kubelet)

    def is_ready(self) -> bool:
        with self._cluster.client() as client:
            node = client.find(NODES, self.name) or {}
        conditions = (node.get("status") or {}).get("conditions") or ()
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def wait_ready(self) -> None:
        self._cluster.processes.wait_for(self._kubelet, self.is_ready)

    # --- images -------------------------------------------------------------------------------

    def import_image(self, archive: Path) -> None:
        self._ctr("images", "import", str(archive))

    def _ctr(self, *words: str) -> str:
        return self._cluster.inside(
            ensure(CTR), "--address", _SOCKET, "--namespace", "k8s.io", *words, init=self._init
        )

    def _has_runtime(self) -> bool:
        try:
            return bool(self._ctr("version"))
        except RuntimeError:
            return False

    def _import_pause(self) -> None:
        archive = self._directory / "pause.tar"
        archive.write_bytes(images.busybox_archive(PAUSE_IMAGE, command=("sleep", "infinity")))
        self.import_image(archive)

    # --- files --------------------------------------------------------------------------------

    def _entry(self) -> list[str]:
        return self._cluster.entry(self._init)

    def _folder(self, name: str) -> Path:
        path = self._directory / name
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return path

    def _mount(self) -> None:
        """Hide the machine's own kubelet and containerd, if any; make mounts of volumes shared."""
        lines = [
            "mount --make-rshared /",
            "mount -t tmpfs tmpfs /run",
            "mkdir /run/containerd",
            "mount -t tmpfs tmpfs /var/lib",
            f"mkdir {_ROOT}",
            f"mount --bind {shlex.quote(str(self._folder('kubelet')))} {_ROOT}",
        ]
        self._cluster.inside("sh", "-ec", "\n".join(lines), init=self._init)

    def _write_files(self) -> None:
        programs, configuration = self._folder("programs"), self._folder("cni")
        for part in (CONTAINERD, SHIM, *CNI):
            link = programs / part.name
            link.unlink(missing_ok=True)
            link.symlink_to(ensure(part))
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": self._subnet}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(self._folder("addresses")),
                    },
                }
            ],
        }
        (configuration / "10-pods.conflist").write_text(json.dumps(network))
        (self._directory / "resolv.conf").write_text("")
        (self._directory / "containerd.toml").write_text(
            _CONTAINERD_CONFIG.format(
                root=self._folder("containerd"),
                socket=_SOCKET,
                cni_programs=programs,
                cni_configuration=configuration,
                runc=debian.program("runc"),
                pause=PAUSE_IMAGE,
            )
        )

    def _kubelet_configuration(self) -> dict[str, Any]:
        reserved = (os.cpu_count() or 1) - self._settings.cpus
        if reserved < 0:
            raise RuntimeError(f"{self.name} needs {self._settings.cpus} CPUs of this machine")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 0,
            # The network namespace is the cluster's own: only its pods and servers call a kubelet.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cluster.cgroup}/{self.name}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": ["pods"],
            "systemReserved": {"cpu": str(reserved)} if reserved else {},
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "clusterDNS": [DNS_ADDRESS],
            "clusterDomain": DOMAIN,
            "resolvConf": str(self._directory / "resolv.conf"),
            "oomScoreAdj": 0,  # lowering it needs CAP_SYS_RESOURCE
            "makeIPTablesUtilChains": False,
            "evictionHard": dict(self._settings.eviction_hard),
            "evictionSoft": dict(self._settings.eviction_soft),
            "evictionSoftGracePeriod": dict.fromkeys(self._settings.eviction_soft, "1s"),
            "evictionMaxPodGracePeriod": 1,
            "evictionPressureTransitionPeriod": "5s",
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 8,
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
            "podLogsDir": str(self._folder("podlogs")),
            "volumePluginDir": str(self._folder("volumeplugins")),
        }
