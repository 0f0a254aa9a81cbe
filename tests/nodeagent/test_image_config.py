"""Command, variables and user of a container from its image; logins to registries."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from hekla.images.documents import ImageConfig, Platform
from hekla.images.reference import parse_reference
from hekla.images.transfer import Credentials as Login
from hekla.nodeagent.image_config import (
    ImageConfigError,
    ImageUser,
    find_user,
    image_command,
    image_credentials,
    image_directory,
    image_variables,
    stop_signal,
)
from hekla.nodeagent.pull_secrets import find_login, own_login_file
from hekla.nodeagent.sandbox import image_support, isolation_support
from hekla.nodeagent.security_context import Abilities, credentials
from hekla.units.objects import Object

FILES = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\nann:x:1000:1001::/home/ann:/bin/sh\nbad:x:y:z::/:\n",
    "/etc/group": "root:x:0:\nstaff:x:1001:\nvideo:x:44:ann,bob\n",
}


def config(**fields: Any) -> ImageConfig:
    return ImageConfig(Platform(), (), **fields)


def read(path: str) -> str:
    return FILES[path]


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ({}, ["entry", "default"]),
        ({"args": ["given"]}, ["entry", "given"]),
        ({"command": ["own"]}, ["own"]),
        ({"command": ["own"], "args": ["$(A)"]}, ["own", "1"]),
    ],
)
def test_command_and_args_replace_those_of_the_image(
    container: Object, expected: list[str]
) -> None:
    image = config(entrypoint=("entry",), cmd=("default",))
    assert image_command({"name": "c", "image": "x", **container}, image, {"A": "1"}) == expected


def test_image_without_a_command_is_named() -> None:
    with pytest.raises(ImageConfigError, match="has no command"):
        image_command({"name": "c", "image": "x"}, config(), {})


def test_variables_and_directory_have_defaults() -> None:
    variables = image_variables(config(env=("A=b=c", "PATH=/p")), ImageUser(0, 0, home="/root"))
    assert variables == {"PATH": "/p", "HOME": "/root", "A": "b=c"}
    assert image_directory({}, config()) == "/"
    assert image_directory({}, config(working_dir="app")) == "/app"
    assert image_directory({"workingDir": "/w"}, config(working_dir="/app")) == "/w"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ImageUser(0, 0, (), "/root")),
        ("ann", ImageUser(1000, 1001, (44,), "/home/ann")),
        ("1000", ImageUser(1000, 1001, (44,), "/home/ann")),
        ("ann:root", ImageUser(1000, 0, (), "/home/ann")),
        ("7:8", ImageUser(7, 8)),
        ("7", ImageUser(7, 0)),
    ],
)
def test_user_is_looked_up_in_the_image(text: str, expected: ImageUser) -> None:
    assert find_user(text, read) == expected


@pytest.mark.parametrize("text", ["ghost", "ann:ghosts", "bad", "99999999999", "1:4294967295"])
def test_unknown_user_is_refused(text: str) -> None:
    with pytest.raises(ImageConfigError):
        find_user(text, read)


def abilities(*, is_root: bool, namespace: bool = False) -> Abilities:
    user = "namespace" if namespace else "owner"
    return Abilities(user, is_root, True, False, uid=0 if is_root else 500, gid=500)  # type: ignore[arg-type]


def given_and_user(pod: Object, text: str, can: Abilities) -> Any:
    container: Object = {"name": "c"}
    before = credentials(pod, container, can)
    return image_credentials(pod, container, before, config(user=text), read, can)


def test_user_of_the_pod_wins() -> None:
    pod: Object = {"spec": {"securityContext": {"runAsUser": 1000, "fsGroup": 9}}}
    given, user = given_and_user(pod, "ghost", abilities(is_root=True, namespace=True))
    assert (given.uid, given.gid, given.groups) == (1000, 1001, (1001, 44, 9))
    assert user.home == "/home/ann"


def test_user_outside_the_range_of_a_namespace_is_refused() -> None:
    with pytest.raises(ImageConfigError, match="outside the 65536 ids"):
        given_and_user({"spec": {}}, "70000", abilities(is_root=True, namespace=True))


def test_without_root_the_user_of_the_image_is_root_or_the_agent() -> None:
    for text in ("", "0", "root", "500"):
        given, _ = given_and_user({"spec": {}}, text, abilities(is_root=False))
        assert given.uid == 500
    with pytest.raises(ImageConfigError, match="without root all pods of this node run as"):
        given_and_user({"spec": {}}, "ann", abilities(is_root=False))


def test_stop_signals_have_names_and_numbers() -> None:
    assert stop_signal("") == stop_signal("SIGTERM") == stop_signal("NONE") == signal.SIGTERM
    assert stop_signal("SIGQUIT") == stop_signal("3") == signal.SIGQUIT
    assert stop_signal("SIGRTMIN+3") == signal.SIGRTMIN + 3


def secret(auths: Object, kind: str = "dockerconfigjson") -> Object:
    body = {"auths": auths} if kind == "dockerconfigjson" else auths
    data = {f".{kind}": base64.b64encode(json.dumps(body).encode()).decode()}
    return {"metadata": {"name": "s"}, "type": f"kubernetes.io/{kind}", "data": data}


def packed(text: str) -> Object:
    return {"auth": base64.b64encode(text.encode()).decode()}


def test_login_of_the_longest_prefix_is_used() -> None:
    secrets = [
        secret({"r.example:5000": packed("all:a"), "https://r.example:5000/team": packed("t:b")}),
        secret({"https://index.docker.io/v1/": {"username": "u", "password": "p"}}, "dockercfg"),
    ]
    found = {
        name: find_login(secrets, parse_reference(name))
        for name in (
            "r.example:5000/x",
            "r.example:5000/team/x",
            "r.example:5000/teams/x",
            "ubuntu",
        )
    }
    assert list(found.values()) == [
        Login("all", "a"), Login("t", "b"), Login("all", "a"), Login("u", "p")
    ]  # fmt: skip
    assert find_login(secrets, parse_reference("other.example/x")) is None


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "Opaque", "data": {}},
        {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "%%%"}},
        {"type": "kubernetes.io/dockerconfigjson"},
        secret({"docker.io": {"auth": "?"}}),
        secret({"docker.io": {"auth": base64.b64encode(b"\xff\xfe").decode()}}),
        secret({"docker.io": ["x"]}),
        secret([]),  # type: ignore[arg-type]
    ],
)
def test_secret_that_cannot_be_read_has_no_login(broken: Object) -> None:
    assert find_login([broken], parse_reference("ubuntu")) is None


def test_login_file_of_the_user_is_the_one_of_podman_before_docker(tmp_path: Path) -> None:
    assert own_login_file({}, tmp_path) is None
    for path in (".docker/config.json", ".config/containers/auth.json"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("{}")
        assert own_login_file({}, tmp_path) == tmp_path / path


def test_machine_that_cannot_mount_layers_says_why(tmp_path: Path) -> None:
    assert image_support(tmp_path, "none", None) == "mount and PID namespaces are required"
    if isolation_support().isolation != "root":
        return
    with (tmp_path / "no-namespace").open("w") as file:
        assert "ids of a user namespace" in image_support(tmp_path, "root", file.fileno())
    assert [path.name for path in tmp_path.iterdir()] == ["no-namespace"]
