"""What a container gets: variables, commands, images, volumes, hosts, devices; and its log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hekla.nodeagent.device_manager import DeviceManager, requested_shares
from hekla.nodeagent.environment import (
    MissingReference,
    Sources,
    command_line,
    container_environment,
    expand,
)
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpus import GpuShare, simulate_gpus
from hekla.nodeagent.hosts import hosts_file
from hekla.nodeagent.images import Images, ImagesError, NotMapped
from hekla.nodeagent.logs import LogFile
from hekla.nodeagent.node_status import node_object
from hekla.nodeagent.pod_addresses import PodAddresses
from hekla.nodeagent.volumes import VolumeError, Volumes
from hekla.units.objects import Object

POD: Object = {
    "metadata": {
        "name": "train-worker-0",
        "namespace": "ml",
        "uid": "u-1",
        "labels": {"app": "train"},
        "annotations": {"a/b": "c"},
    },
    "spec": {"nodeName": "box", "serviceAccountName": "bot", "containers": []},
}
NODE: Object = {"status": {"allocatable": {"cpu": "8", "memory": "16Gi"}}}
EXPANSIONS = {
    "$(A)": "1",
    "x$(A)y$(B)": "x1y2",
    "$$(A)": "$(A)",
    "$(UNKNOWN)": "$(UNKNOWN)",
    "$A": "$A",
    "$$$(A)": "$1",
    "$(": "$(",
}


@pytest.mark.parametrize("text", EXPANSIONS)
def test_references_are_expanded_as_in_kubernetes(text: str) -> None:
    assert expand(text, {"A": "1", "B": "2"}) == EXPANSIONS[text]


def variables(container: Object, sources: Sources | None = None) -> dict[str, str]:
    return container_environment(
        POD, container, sources or Sources(), base={"PATH": "/bin"}, node=NODE, pod_ip="127.64.0.7"
    )


def ref(name: str, **source: Any) -> Object:
    return {"name": name, "valueFrom": source}


def test_variables_come_from_all_sources_in_order() -> None:
    sources = Sources({"settings": {"COLOUR": "red", "k": "v"}}, {"vault": {"key": "s3cret"}})
    made = variables(
        {
            "name": "main",
            "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1500m"}},
            "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "S_"}],
            "env": [
                {"name": "FIRST", "value": "1"},
                {"name": "SECOND", "value": "$(FIRST)-$(S_COLOUR)-$(LATER)"},
                {"name": "LATER", "value": "x"},
                ref("NAME", fieldRef={"fieldPath": "metadata.name"}),
                ref("APP", fieldRef={"fieldPath": "metadata.labels['app']"}),
                ref("IP", fieldRef={"fieldPath": "status.podIP"}),
                ref("KEY", secretKeyRef={"name": "vault", "key": "key"}),
                ref("NONE", configMapKeyRef={"name": "no", "key": "k", "optional": True}),
                ref("MEM", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
                ref("CPU", resourceFieldRef={"resource": "requests.cpu"}),
                ref("ALL", resourceFieldRef={"resource": "limits.cpu"}),
            ],
        },
        sources,
    )
    assert made == {
        "PATH": "/bin", "S_COLOUR": "red", "S_k": "v", "FIRST": "1",
        "SECOND": "1-red-$(LATER)", "LATER": "x", "NAME": "train-worker-0", "APP": "train",
        "IP": "127.64.0.7", "KEY": "s3cret", "MEM": "1024", "CPU": "2", "ALL": "8",
    }  # fmt: skip


def test_missing_reference_is_named_in_the_error() -> None:
    with pytest.raises(MissingReference, match="ConfigMap 'no' does not exist"):
        variables({"env": [ref("X", configMapKeyRef={"name": "no", "key": "k"})]}, Sources())
    with pytest.raises(MissingReference, match="Secret 's' has no key 'k'"):
        variables({"env": [ref("X", secretKeyRef={"name": "s", "key": "k"})]},
                  Sources(None, {"s": {}}))  # fmt: skip


def test_command_and_args_are_expanded() -> None:
    container = {"command": ["run", "$(A)"], "args": ["--n=$(N)", "$$HOME"]}
    assert command_line(container, {"A": "a", "N": "3"}) == ["run", "a", "--n=3", "$HOME"]


def test_first_matching_image_pattern_is_used(tmp_path: Path) -> None:
    table = tmp_path / "images.toml"
    table.write_text(
        f'[images]\n"torch/*" = {{ venv = "{tmp_path}" }}\n"*:dev" = {{ host = true }}\n'
    )
    images = Images.load(table)
    assert images.resolve("host").kind == "host"
    assert images.resolve("any:dev").kind == "host"
    torch = images.resolve("torch/train:1")
    assert torch.variables({"PATH": "/bin"})["PATH"] == f"{tmp_path}/bin{os.pathsep}/bin"
    with pytest.raises(NotMapped, match=r'"busybox" = \{ host = true \}'):
        images.resolve("busybox")
    assert Images.load(table, host_images=True).resolve("busybox").kind == "host"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[images", "images.toml"),
        ('[images]\n"a" = { host = true, venv = "/" }', "exactly one of"),
        ('[images]\n"a" = "host"', "exactly one of"),
        ('[images]\n"a" = { venv = "/no/such/place" }', "there is no directory"),
    ],
)
def test_invalid_image_table_is_rejected_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "images.toml").write_text(text)
    with pytest.raises(ImagesError, match=why):
        Images.load(tmp_path / "images.toml")


def make(tmp_path: Path, volume: Object, sources: Sources | None = None) -> Path:
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "v", **volume}]}}
    volumes = Volumes(pod, tmp_path / "volumes", tmp_path / "claims", sources or Sources())
    return volumes.make(node=NODE, pod_ip="127.64.0.7")["v"]


def test_volumes_are_written_as_files(tmp_path: Path) -> None:
    sources = Sources({"m": {"a.txt": "A", "b": "B"}}, {"s": {"id_rsa": "KEY"}})
    whole = make(tmp_path / "1", {"configMap": {"name": "m"}}, sources)
    assert sorted(p.name for p in whole.iterdir()) == ["a.txt", "b"]
    items = [{"key": "id_rsa", "path": ".ssh/id_rsa", "mode": 0o600}]
    secret = make(tmp_path / "2", {"secret": {"secretName": "s", "items": items}}, sources)
    assert (secret / ".ssh/id_rsa").read_text() == "KEY"
    assert (secret / ".ssh/id_rsa").stat().st_mode & 0o777 == 0o600
    projected = make(
        tmp_path / "3",
        {
            "projected": {
                "sources": [
                    {"configMap": {"name": "m", "items": [{"key": "b", "path": "conf/b"}]}},
                    {"downwardAPI": {"items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]
            }
        },
        sources,
    )  # fmt: skip
    assert (projected / "conf/b").read_text() == "B"
    assert (projected / "labels").read_text() == 'app="train"'


def test_unsupported_volume_is_rejected_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(VolumeError, match="nfs is not available on a single machine"):
        make(tmp_path, {"nfs": {"server": "x", "path": "/"}})
    with pytest.raises(VolumeError, match="does not exist"):
        make(tmp_path, {"hostPath": {"path": "/no/such/path", "type": "Directory"}})
    with pytest.raises(MissingReference, match="ConfigMap 'm' does not exist"):
        make(tmp_path, {"configMap": {"name": "m"}})
    escape = {"configMap": {"name": "m", "items": [{"key": "k", "path": "../../x"}]}}
    with pytest.raises(VolumeError, match="leads out"):
        make(tmp_path, escape, Sources({"m": {"k": "v"}}))


def test_hosts_file_has_pods_by_name_and_subdomain() -> None:
    pod = {**POD, "spec": {**POD["spec"], "hostname": "w0", "subdomain": "train"}}
    text = hosts_file([(pod, "127.64.0.7")])
    assert "127.64.0.7 w0.train.ml.svc.cluster.local w0.train w0 train-worker-0\n" in text


def test_addresses_and_gpus_are_allocated_once_and_released() -> None:
    addresses = PodAddresses((127, 64, 0, 1))
    first = addresses.allocate("a", "ns/w-0")
    assert first == addresses.expected("ns/w-0")
    assert addresses.allocate("a", "ns/w-0") == first
    second = addresses.allocate("b", "ns/w-0")  # the next w-0, while the last one still exists
    assert second != first
    addresses.release("a")
    assert addresses.allocate("c", "ns/w-0") == first
    assert {a.split(".")[1] for a in addresses.allocated.values()} == {"64"}
    devices = DeviceManager(simulate_gpus(4))
    assert (devices.allocate("a", 2), devices.allocate("b", 1), devices.allocate("a", 2)) == (
        [0, 1],
        [2],
        [0, 1],
    )
    devices.release("a")
    assert devices.allocate("c", 3) == [0, 1, 3]
    with pytest.raises(AllocationError, match="needs 2 GPUs, and 0 are free"):
        devices.allocate("d", 2)


def _pod(limits: dict[str, str], **notes: str) -> dict[str, Any]:
    annotations = {f"volcano.sh/{name.replace('_', '-')}": text for name, text in notes.items()}
    return {
        "metadata": {"uid": "u", "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
    }


def test_annotations_name_the_gpus_and_limits_their_number_and_size() -> None:
    devices = DeviceManager(simulate_gpus(4))  # of 16384 MiB
    half = _pod(
        {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory-percentage": "50"},
        vgpu_ids_new="GPU-simulated-3,NVIDIA,99999,100:",
    )
    assert requested_shares(half, devices) == [GpuShare("c", 3, 8192, 0)]
    numbered = {"volcano.sh/gpu-number": "2"}
    assert requested_shares(_pod(numbered, gpu_index="1,2"), devices) == [
        GpuShare("", 1, 16384, 100),
        GpuShare("", 2, 16384, 100),
    ]
    for nonsense in ("1", "1,2,3", ""):
        with pytest.raises(AllocationError, match="requests 2 GPUs"):
            requested_shares(_pod(numbered, gpu_index=nonsense), devices)
    with pytest.raises(AllocationError, match="requests 1 GPUs"):
        requested_shares(_pod({"volcano.sh/vgpu-memory": "5"}, vgpu_ids_new="garbage"), devices)


def test_with_mps_the_environment_has_mps_limits() -> None:
    devices = DeviceManager(simulate_gpus(3), mps_directory="/run/mps")
    pod = _pod(
        {
            "volcano.sh/vgpu-number": "2",
            "volcano.sh/vgpu-memory": "3000",
            "volcano.sh/vgpu-cores": "30",
        },
        vgpu_ids_new="GPU-simulated-2,NVIDIA,3000,30:GPU-simulated-0,NVIDIA,3000,30:",
    )
    assert devices.variables(pod, "c") == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }, "nothing is allocated yet"
    devices.share("u", requested_shares(pod, devices))
    variables = devices.variables(pod, "c")
    assert {key: text for key, text in variables.items() if "MPS" in key} == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3000M,1=3000M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "30",
    }
    node = node_object("n", "now", devices.gpus, devices.mode)
    register = node["metadata"]["annotations"]["volcano.sh/node-vgpu-register"]
    assert register.startswith("GPU-simulated-0,10,16384,Simulated-GPU,true,mps:")
    without = DeviceManager(simulate_gpus(3), shared=devices.shared)
    assert not any("MPS" in key for key in without.variables(pod, "c"))


def test_gpu_shares_never_exceed_the_gpu() -> None:
    devices = DeviceManager(simulate_gpus(2))
    devices.share("a", [GpuShare("", 0, 10000, 0)])  # by volcano.sh/gpu-memory
    devices.share("b", [GpuShare("c", 0, 6384, 50)])  # a vGPU fills it
    for more in (GpuShare("c", 0, 1, 0), GpuShare("", 0, 16384, 100)):
        with pytest.raises(AllocationError, match="a share of GPU 0"):
            devices.share("d", [more])
    devices.share("e", [GpuShare("", 1, 16384, 100)])
    with pytest.raises(AllocationError, match="a share of GPU 1"):
        devices.share("f", [GpuShare("c", 1, 0, 0)])


def text_of(file: LogFile, position: int) -> str:
    return b"".join(file.read(position)).decode()


def test_log_can_be_read_by_lines_and_by_time(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_text("")
    file = LogFile(path)
    for second in range(5):
        file.mark(1000.0 + second)
        with path.open("a") as out:
            out.write(f"line {second}\n")
    assert text_of(file, file.tail(2)) == "line 3\nline 4\n"
    assert text_of(file, file.tail(99)).startswith("line 0\n")
    assert text_of(file, file.tail(0)) == ""
    assert text_of(file, file.since(1003.5)) == "line 3\nline 4\n"
    stamped = file.stamp(b"line 2\nline 3\n", 14, True).decode().splitlines()
    assert stamped == ["1970-01-01T00:16:42Z line 2", "1970-01-01T00:16:43Z line 3"]
    with path.open("a") as out:
        out.write("unfinished")
    assert text_of(file, file.tail(1)) == "unfinished"


def test_log_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    file = LogFile(path)
    with path.open("ab", buffering=0) as out:
        for number in range(2000):
            out.write(f"{number:06} {'x' * 1000}\n".encode())
            if number % 100 == 0:
                file.bound(max_bytes=400_000, keep_bytes=200_000)
        file.bound(max_bytes=400_000, keep_bytes=200_000)
    assert path.stat().st_blocks * 512 <= 500_000
    kept = text_of(file, file.first()).splitlines()
    assert kept[-1].startswith("001999")
    assert all(len(line) == 1007 for line in kept), "it begins at the start of a line"
    assert text_of(file, file.tail(1)).startswith("001999")
