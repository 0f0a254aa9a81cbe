"""What a container gets: variables, commands, images and volumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hekla.nodeagent.environment import (
    MissingReference,
    Sources,
    command_line,
    container_environment,
    expand,
)
from hekla.nodeagent.images import (
    Images,
    ImagesError,
    ImagesFile,
    NotMapped,
    default_command,
)
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
    with pytest.raises(NotMapped, match=r'"alien" = \{ host = true \}.* in ' + str(table)):
        images.resolve("alien")
    assert Images.load(table, host_images=True).resolve("alien").kind == "host"


def test_busybox_is_this_machine_unless_the_table_maps_it(tmp_path: Path) -> None:
    """It is the default image of `vcctl job run` and of the SDK, and a real one on Kubernetes."""
    for image in ("busybox", "busybox:1.36", "busybox@sha256:0"):
        assert Images().resolve(image).kind == "host"
        assert default_command(image) == ["sh"]
    with pytest.raises(NotMapped):
        Images().resolve("busybox-tools")
    assert default_command("host") == []
    table = tmp_path / "images.toml"
    table.write_text(f'[images]\n"busybox*" = {{ venv = "{tmp_path}" }}\n')
    assert Images.load(table).resolve("busybox").kind == "venv"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[images", "images.toml"),
        ('[images]\n"a" = { host = true, venv = "/" }', "exactly one of"),
        ('[images]\n"a" = "host"', "exactly one of"),
        ('[images]\n"a" = { venv = "/no/such/place" }', "there is no directory"),
        ("images = 3", "images is not a table"),
        ("#" * (1 << 20) + "\n", "larger than 1 MiB"),
    ],
)
def test_invalid_image_table_is_rejected_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "images.toml").write_text(text)
    with pytest.raises(ImagesError, match=why):
        Images.load(tmp_path / "images.toml")


def test_changed_image_table_is_read_again(tmp_path: Path) -> None:
    table = tmp_path / "images.toml"
    images = ImagesFile(table)
    with pytest.raises(NotMapped):
        images.resolve("late:1")
    table.write_text('[images]\n"late:*" = { host = true }\n')
    assert images.resolve("late:1").kind == "host"
    table.unlink()
    with pytest.raises(NotMapped):
        images.resolve("late:1")


def test_invalid_change_keeps_the_last_valid_image_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = tmp_path / "images.toml"
    table.write_text('[images]\n"good:*" = { host = true }\n')
    images = ImagesFile(table)
    table.write_text('[images\n"good:*" = { host = true }\n"late:*" = { host = true }\n')
    assert images.resolve("good:1").kind == "host"
    with pytest.raises(NotMapped, match=r"changed table of images is not used: .*images.toml"):
        images.resolve("late:1")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    table.write_text('[images]\n"late:*" = { host = true }\n')
    assert images.resolve("late:1").kind == "host"


def test_image_table_that_is_invalid_at_the_start_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "images.toml"
    table.write_text("[images")
    with pytest.raises(ImagesError, match=r"images\.toml"):
        ImagesFile(table)


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
