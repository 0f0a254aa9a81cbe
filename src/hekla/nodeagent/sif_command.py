"""What Apptainer's conventions mean for the command of a container that runs a SIF image. Pure.

The scripts in /.singularity.d/env set the variables of the image, so a shell of the image reads
them before the command. Variables of the pod are set again after them: as with `apptainer --env`,
they win. `command` replaces the runscript; without it, `args` are arguments of the runscript.
"""

from __future__ import annotations

from collections.abc import Mapping
from posixpath import basename

from hekla.images.catalog import SifFacts
from hekla.images.reference import FILE_PREFIX

# $1: the number of variables that follow, as NAME=value; the rest: the command. The scripts are
# read in a function, which gives them arguments of their own to change.
_WITH_ENVIRONMENT = """
_hekla_read() { for _hekla_f in /.singularity.d/env/*.sh; do
[ -f "$_hekla_f" ] && . "$_hekla_f"; done; }
_hekla_read
_hekla_n=$1; shift
while [ "$_hekla_n" -gt 0 ]; do export "$1"; shift; _hekla_n=$((_hekla_n - 1)); done
unset _hekla_f _hekla_n
exec "$@"
"""


def sif_variables(image: str) -> dict[str, str]:
    """Return the variables by which programs see that they run in a SIF image."""
    name = image.removeprefix(FILE_PREFIX)
    pairs = {"CONTAINER": name, "NAME": basename(name)}
    return {
        f"{prefix}_{key}": value
        for prefix in ("APPTAINER", "SINGULARITY")
        for key, value in pairs.items()
    }


def sif_command(
    words: list[str], facts: SifFacts, variables: Mapping[str, str], base: Mapping[str, str]
) -> list[str]:
    """Return a command that runs with the environment of its image.

    `base` are the variables that the scripts of the image may replace. Without a shell there are no
    scripts. Names that a shell does not allow keep their values only without one.
    """
    if not facts.has_shell:
        return words
    own = [
        f"{name}={value}"
        for name, value in variables.items()
        if base.get(name) != value and name.isidentifier() and name.isascii()
    ]
    return ["/bin/sh", "-c", _WITH_ENVIRONMENT, "hekla", str(len(own)), *own, *words]
