"""What the configuration of an image means for a container: command, variables, user. Pure."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hekla.images.documents import ImageConfig
from hekla.images.reference import FILE_PREFIX, ORAS_PREFIX, parse_reference
from hekla.nodeagent.environment import expand
from hekla.nodeagent.security_context import RANGE_SIZE, Abilities, Credentials
from hekla.units.objects import Object

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_ID: Final = (1 << 32) - 2

ReadFile = Callable[[str], str]
"""Returns the text of a file of the image; empty if there is none."""


class ImageConfigError(Exception):
    """A container cannot run its image in this way; the message says why."""


@dataclass(frozen=True, slots=True)
class ImageUser:
    """The user of a container, in ids of the image."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    """Beside `gid`."""
    home: str = "/"


def image_command(
    container: Object, config: ImageConfig, variables: Mapping[str, str]
) -> list[str]:
    """Return `command` and `args`, with those of the image where Kubernetes uses them."""
    command = [expand(word, variables) for word in container.get("command") or ()]
    args = [expand(word, variables) for word in container.get("args") or ()]
    words = [*command, *args] if command else [*config.entrypoint, *(args or config.cmd)]
    if not words:
        raise ImageConfigError(
            f"container {container['name']!r}: the image {container['image']!r} has no command; "
            "set command"
        )
    return words


def check_command(container: Object) -> None:
    """Raise ImageConfigError for a container that wants the runscript that its image lacks."""
    if not container.get("command"):
        raise ImageConfigError(
            f"container {container['name']!r}: the image {container['image']!r} has no runscript; "
            "set command"
        )


def image_variables(config: ImageConfig, user: ImageUser) -> dict[str, str]:
    """Return the variables that a container has before its own."""
    variables = {"PATH": DEFAULT_PATH, "HOME": user.home}
    for pair in config.env:
        name, _, value = pair.partition("=")
        variables[name] = value
    return variables


def image_id(name: str, digest: str) -> str:
    """Return the name of an image by its digest, for the status."""
    if name.startswith(FILE_PREFIX):
        return f"{name}@{digest}"
    if name.startswith(ORAS_PREFIX):
        # Of the file, as `sha256sum` shows it, and not of its manifest.
        return f"{ORAS_PREFIX}{image_id(name.removeprefix(ORAS_PREFIX), digest)}"
    return str(parse_reference(name).by_digest(digest))


def stop_signal(text: str) -> int:
    """Return the number of an image's stop signal; SIGTERM for one that is unknown."""
    name = text.upper().removeprefix("SIG")
    base, plus, offset = name.partition("+")
    if base == "RTMIN" and plus and offset.isdigit():
        return min(signal.SIGRTMIN + int(offset), signal.SIGRTMAX)
    if name.isdigit():
        return int(name) if 0 < int(name) <= signal.SIGRTMAX else signal.SIGTERM
    return int(getattr(signal, f"SIG{name}", signal.SIGTERM)) if name else signal.SIGTERM


def image_directory(container: Object, config: ImageConfig) -> str:
    """Return the work directory of a container."""
    given = str(container.get("workingDir") or config.working_dir or "/")
    return given if given.startswith("/") else f"/{given}"


def image_credentials(
    pod: Object,
    container: Object,
    given: Credentials,
    config: ImageConfig,
    read: ReadFile,
    abilities: Abilities,
) -> tuple[Credentials, ImageUser]:
    """Return the credentials of a container with the image's user, unless the pod sets one."""
    outer = pod["spec"].get("securityContext") or {}
    inner = container.get("securityContext") or {}
    wants_user = any(context.get("runAsUser") is not None for context in (inner, outer))
    wants_group = any(context.get("runAsGroup") is not None for context in (inner, outer))
    text = str(given.uid) if wants_user else config.user
    user = find_user(text, read)
    if wants_group:
        user = replace(user, gid=given.gid)
    if not abilities.is_root:
        return _as_agent(given, user, config, abilities), replace(user, uid=given.uid)
    for number in (user.uid, user.gid):
        if abilities.pod_user == "namespace" and number >= RANGE_SIZE:
            raise ImageConfigError(
                f"the image runs as {config.user!r}, and {number} is outside the {RANGE_SIZE} ids "
                "of a namespace; set runAsUser and runAsGroup"
            )
    groups = tuple(dict.fromkeys((user.gid, *user.groups, *(given.groups or ()))))
    return replace(given, uid=user.uid, gid=user.gid, groups=groups), user


def _as_agent(
    given: Credentials, user: ImageUser, config: ImageConfig, abilities: Abilities
) -> Credentials:
    """Return the credentials where all pods have one user id: root of an image becomes it."""
    if user.uid not in (0, abilities.uid):
        raise ImageConfigError(
            f"the image runs as {config.user!r}, and without root all pods of this node run as the "
            f"user {abilities.uid}; set runAsUser: {abilities.uid}, or start `hekla up` as root"
        )
    return given


def find_user(text: str, read: ReadFile) -> ImageUser:
    """Return the user that USER names: `user`, `user:group`, names or numbers."""
    name, colon, group = text.partition(":")
    entries = _entries(read("/etc/passwd"), 6)
    number = _number(name or "0", "user")
    entry = next(
        (
            each
            for each in entries
            if (each[2] == str(number) if number is not None else each[0] == name)
        ),
        None,
    )
    if entry is None and number is None:
        raise ImageConfigError(
            f"the image runs as the user {name!r}, which its /etc/passwd does not have; "
            "set runAsUser"
        )
    uid = number if number is not None else _id(entry, 2)
    gid, home = 0, "/"
    groups: tuple[int, ...] = ()
    table = _entries(read("/etc/group"), 4)
    if entry is not None:
        gid, home = _id(entry, 3), entry[5] or "/"
        groups = tuple(_id(each, 2) for each in table if entry[0] in each[3].split(","))
    if colon and group:
        gid, groups = _group(group, table), ()
    return ImageUser(uid, gid, groups, home)


def _group(name: str, table: list[list[str]]) -> int:
    number = _number(name, "group")
    if number is not None:
        return number
    for entry in table:
        if entry[0] == name:
            return _id(entry, 2)
    raise ImageConfigError(
        f"the image runs as the group {name!r}, which its /etc/group does not have; set runAsGroup"
    )


def _number(text: str, what: str) -> int | None:
    """Return a number; None for a name."""
    if not (text.isascii() and text.isdigit()):
        return None
    if len(text) > 10 or int(text) > MAX_ID:
        raise ImageConfigError(f"the image runs as the {what} {text[:40]}, which is too large")
    return int(text)


def _id(entry: list[str] | None, column: int) -> int:
    found = _number(entry[column], "user or group") if entry else None
    if found is None:
        raise ImageConfigError(
            "the image has an entry without a number in /etc/passwd or /etc/group"
        )
    return found


def _entries(text: str, columns: int) -> list[list[str]]:
    found = [line.split(":") for line in text.splitlines()]
    return [each for each in found if len(each) >= columns and each[0]]
