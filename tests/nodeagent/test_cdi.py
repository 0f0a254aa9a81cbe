"""GPUs of containers by CDI specs: reading them, and what a container gets."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hekla.images.store import ImageStore
from hekla.nodeagent.cdi import CdiSpecs, Hook, InvalidSpec
from hekla.nodeagent.cdi_hooks import LIBRARIES, links, read_soname
from hekla.nodeagent.errors import AllocationError
from hekla.nodeagent.gpu_edits import gpu_edits
from hekla.nodeagent.gpus import Gpu
from hekla.units.objects import Object
from tests.images.registry import RealRegistry
from tests.nodeagent.conftest import Machine
from tests.nodeagent.test_image_containers import (
    build,
    busybox,  # noqa: F401  fixtures
    image_store,  # noqa: F401
    restart,
    run,
    waiting,
)

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
FIRST = Gpu("GPU-simulated-0", 1024, "Simulated-GPU")


def spec(*devices: Object, **more: Any) -> Object:
    edits = more.pop("containerEdits", {})
    return {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": list(devices),
        "containerEdits": edits,
        **more,
    }


def device(name: str, **edits: Any) -> Object:
    return {"name": name, "containerEdits": edits}


def write(path: Path, body: Object) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(body))
    return path


def hook(verb: str, *options: str, program: str = "nvidia-cdi-hook") -> Object:
    words = [program, "hook", verb] if program == "nvidia-ctk" else [program, verb]
    return {
        "hookName": "createContainer",
        "path": f"/usr/bin/{program}",
        "args": [*words, *options],
        "env": ["NVIDIA_CTK_DEBUG=false"],
    }


def own_libc() -> Path:
    """Return a library with a soname."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(Path(line.split()[-1]) for line in lines if "libc.so.6" in line)


def values(specs: CdiSpecs, gpus: list[tuple[int, Gpu]]) -> dict[str, str]:
    edits = gpu_edits(specs, gpus)
    assert edits is not None
    return edits.variables


def test_devices_are_found_by_uuid_and_by_index(tmp_path: Path) -> None:
    specs = CdiSpecs([tmp_path])
    real, gpu = Gpu(UUID, 1024, "A100"), FIRST
    assert gpu_edits(specs, [(3, real)]) is None, "no specs: as before"
    write(tmp_path / "nvidia.json", spec(device("3", env=["BY=index"]), device("0", env=["BY=0"])))
    assert values(specs, [(3, real)]) == {"BY": "index"}
    assert gpu_edits(specs, [(0, gpu)]) is None, "simulated GPUs are not those of the machine"
    write(tmp_path / "uuid.json", spec(device(UUID, env=["BY=uuid"])))
    assert values(specs, [(3, real)]) == {"BY": "uuid"}
    with pytest.raises(AllocationError, match=r"nvidia.com/gpu=7.*nvidia-ctk cdi generate"):
        gpu_edits(specs, [(7, Gpu(UUID[:-1] + "0", 1, "A"))])


def test_edits_of_a_spec_come_once_before_those_of_its_devices(tmp_path: Path) -> None:
    two = [device(f"GPU-simulated-{i}", env=[f"LAST={i}", f"N{i}=x"]) for i in (0, 1)]
    write(tmp_path / "a.json", spec(*two, containerEdits={"env": ["LAST=spec", "ALL=1"]}))
    gpus = [(i, Gpu(f"GPU-simulated-{i}", 1, "S")) for i in (0, 1)]
    want = {"LAST": "1", "ALL": "1", "N0": "x", "N1": "x"}
    assert values(CdiSpecs([tmp_path]), gpus) == want


def test_later_directory_wins_and_equal_ones_conflict(tmp_path: Path) -> None:
    static, dynamic = tmp_path / "etc", tmp_path / "run"
    name = "GPU-simulated-0"
    write(static / "a.json", spec(device(name, env=["FROM=etc"])))
    path = dynamic / "b.yaml"
    dynamic.mkdir()
    path.write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"
        f"devices:\n- name: {name}\n  containerEdits:\n    env: [FROM=run]\n"
    )
    specs = CdiSpecs([static, dynamic])
    assert values(specs, [(0, FIRST)]) == {"FROM": "run"}
    write(static / "c.json", spec(device(name, env=["FROM=c"])))
    assert values(specs, [(0, FIRST)]) == {"FROM": "run"}, "a conflict below does not matter"
    write(dynamic / "d.json", spec(device(name)))
    with pytest.raises(AllocationError, match=r"b.yaml and .*d.json both have it"):
        gpu_edits(specs, [(0, FIRST)])
    path.unlink()
    (dynamic / "d.json").unlink()
    (static / "c.json").unlink()
    assert values(specs, [(0, FIRST)]) == {"FROM": "etc"}, "files are read again"


NODE = {"path": "/dev/x"}
WRONG: dict[str, tuple[Object | str, str]] = {
    "no YAML": ("{", "is not a CDI spec"),
    "a list": ("[]", "Expected `object`"),
    "no kind": ({"cdiVersion": "0.5.0", "devices": []}, "kind"),
    "a newer version": (spec(cdiVersion="7.0.0"), "cdiVersion '7.0.0' is neither"),
    "a kind without a class": (spec(kind="gpu"), "kind 'gpu'"),
    "an unknown field": (spec(device("0", hook=[])), r"unknown field `hook`.*devices\[0\]"),
    "a path that is a number": (
        spec(device("0", deviceNodes=[{"path": 7}])),
        r"devices\[0\].containerEdits.deviceNodes\[0\].path",
    ),
    "a relative path": (
        spec(device("0", deviceNodes=[NODE, {"path": "dev/y"}])),
        r"devices\[0\].containerEdits.deviceNodes\[1\].path 'dev/y'",
    ),
    "a path that leads upwards": (
        spec(containerEdits={"mounts": [{"hostPath": "/a", "containerPath": "/b/../../c"}]}),
        r"containerEdits.mounts\[0\].containerPath",
    ),
    "a file system": (
        spec(containerEdits={"mounts": [{"hostPath": "/", "containerPath": "/b", "type": "proc"}]}),
        r"mounts\[0\].type 'proc' is not supported",
    ),
    "a variable without a value": (spec(containerEdits={"env": ["X"]}), r"env\[0\] is not NAME="),
    "groups": (spec(containerEdits={"additionalGids": [7]}), "additionalGids is not supported"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_specs_are_named_with_their_field(name: str, tmp_path: Path) -> None:
    body, want = WRONG[name]
    path = tmp_path / "nvidia.yaml"
    path.write_text(body if isinstance(body, str) else json.dumps(body))
    with pytest.raises(AllocationError, match=want) as raised:
        gpu_edits(CdiSpecs([tmp_path]), [(0, Gpu(UUID, 1, "A"))])
    assert str(path) in str(raised.value)


def test_missing_device_node_and_file_are_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for edits in (
        {"deviceNodes": [{"path": gone}]},
        {"mounts": [{"hostPath": gone, "containerPath": "/x"}]},
    ):
        write(tmp_path / "nvidia.json", spec(device("0", **edits)))
        with pytest.raises(AllocationError, match=f"needs {gone} for its GPUs"):
            gpu_edits(CdiSpecs([tmp_path]), [(0, Gpu(UUID, 1, "A"))])
    write(tmp_path / "nvidia.json", spec(device("0", deviceNodes=[{"path": "/etc/passwd"}])))
    with pytest.raises(InvalidSpec, match="is not a device"):
        gpu_edits(CdiSpecs([tmp_path]), [(0, Gpu(UUID, 1, "A"))])


def as_hook(body: Object) -> Hook:
    return Hook(body["hookName"], body["path"], body["args"])


def test_hooks_of_nvidia_become_links() -> None:
    for program in ("nvidia-cdi-hook", "nvidia-ctk"):
        made = links(
            [
                (as_hook(hook("create-symlinks", "--link", "libx.so.1::/usr/lib/libx.so",
                              "--link=../y::/usr/z", program=program)), "f"),
                (as_hook(hook("enable-cuda-compat", "--host-driver-version=1",
                              program=program)), "f"),
            ],
            [],
        )  # fmt: skip
        assert made == [("/usr/lib/libx.so", "libx.so.1"), ("/usr/z", "../y")]
    for wrong in ("a::b", "nothing", "x::/../etc", "::/x"):
        with pytest.raises(InvalidSpec, match="--link"):
            links([(as_hook(hook("create-symlinks", "--link", wrong)), "f")], [])
    for other, want in (
        (hook("update-ldcache", program="evil"), "f.json: .*hekla runs none"),
        (hook("new-one"), "f.json: .*--disable-hook=new-one"),
    ):
        with pytest.raises(InvalidSpec, match=want):
            links([(as_hook(other), "f.json")], [])


def test_sonames_are_read_and_nonsense_has_none(tmp_path: Path) -> None:
    libc = own_libc()
    assert read_soname(libc) == "libc.so.6"
    assert read_soname(tmp_path / "missing") == ""
    data = libc.read_bytes()
    for number, wrong in enumerate(
        (b"", b"\x7fELF", data[:70], data[:1000], b"\x7fELF\x02\x01" * 99)
    ):
        path = tmp_path / str(number)
        path.write_bytes(wrong)
        assert read_soname(path) == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make device nodes")
@pytest.mark.parametrize("user", ["namespace", "owner"])
async def test_container_gets_devices_libraries_and_variables(
    machine: Machine,
    image_store: ImageStore,  # noqa: F811
    real: RealRegistry,
    skopeo: str,
    busybox: bytes,  # noqa: F811
    isolation: None,
    tmp_path: Path,
    user: Any,
) -> None:
    null = Path("/dev") / f"hekla-test-{os.getpid()}"
    os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.chmod(null, 0o666)
    try:
        await restart(machine, image_store, skopeo, user, "root")
        reference = real.push("cdi:1", build(busybox, Env=["LD_LIBRARY_PATH=/opt/lib"]))
        note = tmp_path / "smi"
        note.write_text("of the driver\n")
        nodes = [{"path": "/dev/nvidia7", "hostPath": str(null), "type": "c"}]
        common = {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "DRIVER=550"],
            "mounts": [
                {
                    "hostPath": str(note),
                    "containerPath": "/usr/bin/smi",
                    "options": ["ro", "rbind"],
                },
                {"hostPath": str(own_libc()), "containerPath": "/usr/lib64/libcuda.so.550"},
            ],
            "hooks": [
                hook("create-symlinks", "--link", "libcuda.so.1::/usr/lib64/libcuda.so"),
                hook("update-ldcache", "--folder", "/usr/lib64"),
                hook("disable-device-node-modification"),
            ],
        }
        body = spec(device("GPU-simulated-0", deviceNodes=nodes), containerEdits=common)
        write(tmp_path / "cdi/nvidia.json", body)
        await machine.stop_agent()
        machine.start_agent(
            pod_user=user, isolate="root", image_store=image_store, skopeo_path=skopeo, gpus=2,
            cdi_directories=[tmp_path / "cdi"],
        )  # fmt: skip
        script = (
            "ls /dev; echo x > /dev/nvidia7 && echo written; cat /usr/bin/smi; touch /usr/bin/smi; "
            "busybox readlink /usr/lib64/libcuda.so; "
            f"busybox readlink {LIBRARIES}/libc.so.6; "
            "echo $DRIVER $LD_LIBRARY_PATH $CUDA_VISIBLE_DEVICES"
        )
        limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        await run(machine, "one", reference, "sh", "-c", script, container=limits)
        lines = (await machine.logs("one")).splitlines()
        assert "nvidia7" in lines
        assert lines[lines.index("written") :] == [
            "written",
            "of the driver",
            "touch: /usr/bin/smi: Read-only file system",
            "libcuda.so.1",
            "/usr/lib64/libcuda.so.550",
            f"550 /opt/lib:{LIBRARIES} 0",
        ]
        assert "nvidia7" not in os.listdir("/dev")
        await run(machine, "none", reference, "sh", "-c", "ls /dev /usr/lib64; echo $DRIVER.")
        assert "nvidia7" not in await machine.logs("none")
        assert "libcuda" not in await machine.logs("none")
        write(
            tmp_path / "cdi/nvidia.json",
            spec(
                device(
                    "GPU-simulated-0",
                    hooks=[{"hookName": "createContainer", "path": "/opt/evil", "args": ["evil"]}],
                )
            ),
        )
        await machine.run_pod("p", "true", container={"image": str(reference), **limits})
        pod = await machine.until("p", lambda p: "hooks[0]" in waiting(p).get("message", ""))
        assert waiting(pod)["reason"] == "CreateContainerConfigError"
        assert "nvidia.json: devices[0].containerEdits.hooks[0]" in waiting(pod)["message"]
    finally:
        null.unlink()
