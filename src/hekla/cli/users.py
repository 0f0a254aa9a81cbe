"""`hekla user`: the people who share the cluster on this machine.

A user is a service account in a namespace of the same name, with the role `edit` there, and the
right to use some queues. The user's kubeconfig has a token of that account.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from hekla.api.wellknown import POD_QUEUE_NAME
from hekla.cli import terminal
from hekla.kube import kubeconfig
from hekla.kube.cluster_choice import local_cluster
from hekla.kube.data_dir import MULTI_USER_FILE, default_data_dir
from hekla.kube.errors import KubeError
from hekla.kube.kubeconfig import ClusterConfig
from hekla.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    QUEUES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    Resource,
)
from hekla.kube.sync_client import SyncClient
from hekla.units.objects import Object

MANAGER: Final = "hekla-user"
USER_LABEL: Final = "hekla.io/user"
RBAC: Final = "rbac.authorization.k8s.io"
DAY_S: Final = 86_400
RESERVED: Final = ("default", "kube-system", "kube-public", "kube-node-lease", "volcano-system")


@dataclass(frozen=True, slots=True)
class Granted:
    """An object that gives a user rights."""

    resource: Resource[Object]
    body: Object


def rights(name: str, queues: Sequence[str]) -> list[Granted]:
    """Return the objects of a user, in the order of their creation."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": name}
    role = f"hekla-user-{name}"
    return [
        Granted(NAMESPACES, _namespace(name, queues)),
        Granted(SERVICE_ACCOUNTS, _object("v1", "ServiceAccount", name, name, namespace=name)),
        Granted(
            ROLE_BINDINGS,
            {
                **_object(f"{RBAC}/v1", "RoleBinding", role, name, namespace=name),
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
                "subjects": [subject],
            },
        ),
        Granted(
            CLUSTER_ROLES,
            {
                **_object(f"{RBAC}/v1", "ClusterRole", role, name),
                "rules": list(_cluster_rules(name, queues)),
            },
        ),
        Granted(
            CLUSTER_ROLE_BINDINGS,
            {
                **_object(f"{RBAC}/v1", "ClusterRoleBinding", role, name),
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [subject],
            },
        ),
    ]


def _cluster_rules(name: str, queues: Sequence[str]) -> Iterable[Object]:
    """Yield what a user may see of the cluster: no pods, jobs or names of other users."""
    yield {
        "apiGroups": [""],
        "resources": ["namespaces"],
        "verbs": ["get"],
        "resourceNames": [name],
    }
    yield {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    yield {
        "apiGroups": ["scheduling.k8s.io"],
        "resources": ["priorityclasses"],
        "verbs": ["get", "list", "watch"],
    }
    yield {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "verbs": ["get", "list", "watch"],
    }
    if queues:
        yield {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["queues"],
            "verbs": ["use"],
            "resourceNames": sorted(queues),
        }


def _namespace(name: str, queues: Sequence[str]) -> Object:
    """Return the namespace. Pods and groups that name no queue use the user's first one."""
    body = _object("v1", "Namespace", name, name)
    if queues:
        body["metadata"]["annotations"] = {POD_QUEUE_NAME: queues[0]}
    return body


def _object(api: str, kind: str, name: str, user: str, *, namespace: str = "") -> Object:
    metadata: Object = {"name": name, "labels": {USER_LABEL: user}}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


def add(data_dir: Path | None, name: str, queues: Sequence[str], days: int) -> None:
    """Let a user in: create the rights, and print the user's kubeconfig."""
    if name in RESERVED:
        raise click.ClickException(f"{name!r} is a namespace of the cluster; choose another name")
    config = _config(data_dir, sharing=True)
    with SyncClient(config, component=MANAGER) as client:
        try:
            _check_namespace(client, name)
            _check_queues(client, queues)
            for granted in rights(name, queues):
                client.apply(granted.resource, granted.body, field_manager=MANAGER, force=True)
            token = client.create_token(name, namespace=name, expiration_s=days * DAY_S)
        except KubeError as error:
            raise click.ClickException(f"user {name!r} cannot be added: {error}") from error
    terminal.echo(
        kubeconfig.render_kubeconfig(config.server, config.ca_pem, token.value, "hekla", name),
        nl=False,
    )
    where = ", ".join(queues) or "none; name one with --queue"
    terminal.echo(f"user {name}: namespace {name}, queues: {where}", err=True)
    terminal.echo(f"the token in this kubeconfig expires at {token.expires}", err=True)


def _check_namespace(client: SyncClient, name: str) -> None:
    """Refuse a namespace that has another purpose: the user could read what is in it."""
    found: Any = client.find(NAMESPACES, name)
    if found is not None and (found["metadata"].get("labels") or {}).get(USER_LABEL) != name:
        raise click.ClickException(
            f"namespace {name!r} exists and was not made for this user; choose another name, or "
            f"give it to the user: kubectl label namespace {name} {USER_LABEL}={name}"
        )


def _check_queues(client: SyncClient, queues: Sequence[str]) -> None:
    known = {queue["metadata"]["name"] for queue in client.list(QUEUES)}
    for queue in queues:
        if queue not in known:
            raise click.ClickException(
                f"queue {queue!r} does not exist; create it first: hekla queue create -n {queue}"
            )


def remove(data_dir: Path | None, name: str) -> None:
    """Withdraw a user's rights; the namespace with its jobs stays."""
    with SyncClient(_config(data_dir), component=MANAGER) as client:
        if not _is_user(client, name):
            raise click.ClickException(f"there is no user {name!r}; see: hekla user list")
        for granted in reversed(rights(name, ())):
            if granted.resource is not NAMESPACES:
                client.delete(
                    granted.resource,
                    granted.body["metadata"]["name"],
                    namespace=granted.body["metadata"].get("namespace"),
                    missing_ok=True,
                )
    terminal.echo(f"user {name} is removed; the user's tokens are not valid any more")
    terminal.echo(f"jobs and data are still there; to delete them: kubectl delete namespace {name}")


def _is_user(client: SyncClient, name: str) -> bool:
    account: Any = client.find(SERVICE_ACCOUNTS, name, namespace=name)
    return account is not None and USER_LABEL in (account["metadata"].get("labels") or {})


def show(data_dir: Path | None) -> None:
    """Print the users and their queues."""
    with SyncClient(_config(data_dir), component=MANAGER) as client:
        roles = client.list(CLUSTER_ROLES, label_selector=USER_LABEL).items
    if not roles:
        terminal.echo("no users; add one: hekla user add NAME --queue QUEUE > NAME.kubeconfig")
    for role in sorted(roles, key=lambda each: str(each["metadata"]["name"])):
        queues = [
            queue
            for rule in role.get("rules") or ()
            if "use" in rule["verbs"]
            for queue in rule["resourceNames"]
        ]
        terminal.echo(
            f"{role['metadata']['labels'][USER_LABEL]}\tqueues: {', '.join(queues) or '-'}"
        )


def _config(data_dir: Path | None, *, sharing: bool = False) -> ClusterConfig:
    where = data_dir or default_data_dir()
    try:
        config = local_cluster(where)
    except KubeError as error:
        raise click.ClickException(str(error)) from error
    if sharing and not (where / MULTI_USER_FILE).exists():
        raise click.ClickException(
            "this cluster is for one user: its pods are not kept apart from each other, and anyone "
            "may submit to every queue; start it with `hekla up --multi-user` to let others in"
        )
    return config
