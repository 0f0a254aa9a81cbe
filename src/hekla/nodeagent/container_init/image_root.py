"""The root file system of a container from the unpacked layers of an image.

It is an overlay of the layers, which are never written, and a directory of this container. Each
layer is mounted below `scratch` under a short name first, since all options of a mount share one
page. In a user namespace the layers are mounted with ids of its range: the image's root is there
the root of the namespace.
"""

from __future__ import annotations

import os
import stat

from . import linux
from .linux import MS_BIND, MS_NODEV, MS_PRIVATE, MS_REC

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all else here
    from typing import Any

WRITABLE = "w"


def mount_image(
    image: dict[str, Any], scratch: str, target: str, *, options: str, user_namespace: int
) -> None:
    """Mount the root of an image on `target`; `user_namespace` is -1 to keep the layers' ids.

    Note: the work directory is the one of this process afterwards.
    """
    os.chdir(scratch)  # relative paths need no escapes
    names = []
    for number, layer in enumerate(image["layers"] or [None]):
        name = f"l{number}"
        os.mkdir(name)
        if layer is not None:
            _mount_layer(layer, name, user_namespace)
        names.append(name)
    os.mkdir(WRITABLE)
    linux.mount(image["writable"], WRITABLE, None, MS_BIND)
    _copy_root_attributes(names[0], f"{WRITABLE}/upper")
    linux.mount(
        "overlay",
        target,
        "overlay",
        MS_NODEV,
        f"{options}lowerdir={':'.join(names)},upperdir={WRITABLE}/upper,workdir={WRITABLE}/work",
    )


def _mount_layer(layer: str, name: str, user_namespace: int) -> None:
    if user_namespace >= 0:
        linux.mount_with_ids(layer, name, user_namespace)
    else:
        linux.mount(layer, name, None, MS_BIND)


def _copy_root_attributes(layer: str, upper: str) -> None:
    """Give the upper directory mode and owner of the image's root, since it decides them."""
    found = os.stat(layer)
    os.chown(upper, found.st_uid, found.st_gid)
    os.chmod(upper, stat.S_IMODE(found.st_mode))


def make_mount_point(path: str) -> None:
    """Create a directory in the root of an image, in place of a link or file of this name."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        os.mkdir(path)
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(path)
        os.mkdir(path)


def probe(directory: str, options: str, user_namespace: int) -> None:
    """Raise OSError if the kernel cannot run images whose layers are in this file system.

    Note: it leaves directories, which the caller removes. The mounts end with this process.
    """
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, MS_REC | MS_PRIVATE)
    for name in ("layer", "writable/upper", "writable/work", "scratch", "root"):
        os.makedirs(f"{directory}/{name}")
    linux.mount("tmpfs", f"{directory}/scratch", "tmpfs", 0, "mode=755")
    image = {"layers": [f"{directory}/layer"], "writable": f"{directory}/writable"}
    root = f"{directory}/root"
    mount_image(image, f"{directory}/scratch", root, options=options, user_namespace=user_namespace)
    os.mkdir(f"{root}/made")
