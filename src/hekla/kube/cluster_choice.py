"""Which cluster a command or a program means. One rule for all commands and the SDK:

1. a flag: --kubeconfig FILE, --data-dir DIR or --context NAME
2. $KUBECONFIG
3. the running cluster of `hekla up` in the default data directory
4. ~/.kube/config, then the service account of the pod

`hekla run` stops after step 3 and starts a temporary cluster: a job that is tried out on a laptop
must not go to the cluster that kubectl happens to use. The rule for users is in
docs/reference/clusters.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hekla.kube import kubeconfig
from hekla.kube.data_dir import (
    KUBECONFIG_FILE,
    data_dir_flag,
    default_data_dir,
    is_down,
    running_pid,
)
from hekla.kube.errors import ConfigError
from hekla.kube.kubeconfig import ClusterConfig, Kubeconfig


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags of a command that name a cluster."""

    kubeconfig: Path | None = None
    data_dir: Path | None = None
    context: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment variables and the home directory of a process."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    home: Path = field(default_factory=lambda: _home())

    @property
    def data_dir(self) -> Path:
        """The default data directory."""
        return default_data_dir(self.environ, self.home)


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container whose user is in no passwd file
        return Path("/")


def find(
    flags: Flags | None = None,
    around: Surroundings | None = None,
    *,
    may_be_down: bool = False,
) -> ClusterConfig:
    """Return the cluster by all steps of the rule, or raise ConfigError.

    `may_be_down` is for components: they wait for a server that is down, or that restarts.
    """
    flags, around = flags or Flags(), around or Surroundings()
    found = find_named(flags, around, may_be_down=may_be_down)
    if found is not None:
        return found
    if flags.data_dir is not None:
        return local_cluster(flags.data_dir, around)
    if not _has_defaults_of_kubectl(around) and is_down(around.data_dir):
        start = _start_command(around.data_dir, around)
        raise ConfigError(
            f"the cluster in {around.data_dir} is down; start it with `{start}`, or give "
            "--kubeconfig to use another one"
        )
    return kubeconfig.load(environ=around.environ, home=around.home)


def _has_defaults_of_kubectl(around: Surroundings) -> bool:
    """Return whether step 4 names a cluster."""
    config = around.home / ".kube" / "config"
    return config.exists() or bool(around.environ.get("KUBERNETES_SERVICE_HOST"))


def find_named(
    flags: Flags | None = None,
    around: Surroundings | None = None,
    *,
    may_be_down: bool = False,
) -> ClusterConfig | None:
    """Return the cluster by the steps 1 to 3; None if they name none that runs."""
    flags, around = flags or Flags(), around or Surroundings()
    if flags.kubeconfig is not None and flags.data_dir is not None:
        raise ConfigError(
            f"two clusters are given: --kubeconfig {flags.kubeconfig} and --data-dir "
            f"{flags.data_dir}; give one"
        )
    context = flags.context or None
    if flags.data_dir is not None:
        return _running(flags.data_dir, context)
    if flags.kubeconfig is not None or around.environ.get("KUBECONFIG"):
        config = kubeconfig.load(flags.kubeconfig, context=context, environ=around.environ)
        return config if may_be_down else _checked(config, around)
    if context is not None:
        return _with_context(context, around)
    return _running(around.data_dir, None)


def local_cluster(where: Path, around: Surroundings | None = None) -> ClusterConfig:
    """Return the running cluster of a data directory, or raise ConfigError."""
    found = _running(where, None)
    if found is None:
        start = _start_command(where, around or Surroundings())
        raise ConfigError(f"no cluster is running in {where}; start one with `{start}`")
    return found


def _running(where: Path, context: str | None) -> ClusterConfig | None:
    if running_pid(where) is None:
        return None
    return kubeconfig.load(where / KUBECONFIG_FILE, context=context)


def _with_context(context: str, around: Surroundings) -> ClusterConfig:
    """Return a context of the running cluster, or else of ~/.kube/config."""
    own = around.data_dir / KUBECONFIG_FILE
    if running_pid(around.data_dir) is not None:
        is_only_one = not _has_defaults_of_kubectl(around)
        if is_only_one or context in Kubeconfig([own]).contexts:
            return kubeconfig.load(own, context=context)
    return kubeconfig.load(context=context, environ=around.environ, home=around.home)


def _checked(config: ClusterConfig, around: Surroundings) -> ClusterConfig:
    """Refuse the kubeconfig of a cluster on this machine that is down."""
    if not config.is_loopback:
        return config
    for path in config.paths:
        where = path.absolute().parent
        if path.name != KUBECONFIG_FILE or not is_down(where):
            continue
        if config.context in Kubeconfig([path]).contexts:
            raise ConfigError(
                f"the cluster of {path} is on this machine and is down; start it with "
                f"`{_start_command(where, around)}`"
            )
    return config


def _start_command(where: Path, around: Surroundings) -> str:
    default = where.absolute() == around.data_dir.absolute()
    return f"hekla up -d{data_dir_flag(None if default else where)}"
