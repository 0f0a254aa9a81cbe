"""`python -m tools.kube build|up|down`: a real Kubernetes on this machine."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from tools.kube.cluster import KubeCluster
from tools.kube.gobuild import ensure
from tools.kube.kubelets import KubeletCluster, missing
from tools.kube.parts import PARTS
from tools.kube.processes import stop_recorded


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.kube", description=__doc__)
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="build parts, by default all; prints where they are")
    build.add_argument("parts", nargs="*", choices=[[], *PARTS], metavar="part")
    build.set_defaults(run=_build)
    up = commands.add_parser("up", help="start a cluster; prints the path of its kubeconfig")
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--cpu", default="8")
    up.add_argument("--memory", default="32Gi")
    up.add_argument(
        "--kubelets", type=int, default=0, help="with so many real nodes instead of simulated ones"
    )
    up.add_argument("--controllers", action="store_true", help="with the controller manager")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="stop the cluster of a directory")
    down.set_defaults(run=_down)
    for command in (up, down):
        command.add_argument("--dir", type=Path, default=_default_directory())
    arguments = parser.parse_args()
    arguments.run(arguments)


def _default_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"hekla-kube-{os.getuid()}"


def _build(arguments: argparse.Namespace) -> None:
    for name in arguments.parts or PARTS:
        print(ensure(PARTS[name]))


def _up(arguments: argparse.Namespace) -> None:
    if (arguments.dir / "processes.json").exists():
        raise SystemExit(f"{arguments.dir} has a cluster: stop it with down, then remove it")
    where = arguments.dir.resolve()
    if arguments.kubelets:
        _up_with_kubelets(where, arguments.kubelets)
        return
    cluster = KubeCluster(where, controllers=arguments.controllers, outlive=True)
    cluster.start()
    cluster.add_nodes(arguments.nodes, cpu=arguments.cpu, memory=arguments.memory)
    cluster.processes.forget()
    print(cluster.kubeconfig)


def _up_with_kubelets(where: Path, count: int) -> None:
    if reason := missing():
        raise SystemExit(reason)
    cluster = KubeletCluster(where, kubelets=count, outlive=True)
    cluster.start()
    cluster.processes.forget()
    print(cluster.kubeconfig)


def _down(arguments: argparse.Namespace) -> None:
    if not (arguments.dir / "processes.json").exists():
        raise SystemExit(f"{arguments.dir} has no cluster")
    for name in stop_recorded(arguments.dir):
        print(f"stopped {name}")


if __name__ == "__main__":
    main()
