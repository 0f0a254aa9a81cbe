"""Usage over time of queues, namespaces and users, for `vcctl queue top`.

    user   usage
    alice  ████████████············  51.2%
    bob    ██······················   8.3%

Note: the scheduler stores the usage in a ConfigMap in its own namespace, which most users may not
read. They see the queues without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from hekla.api import wellknown
from hekla.api.fairshare import QUEUES_KEY, SHARES_KEY, Queues, Shares
from hekla.cli import terminal
from hekla.cli.vcctl.errors import CommandFailed
from hekla.cli.vcctl.list_watch import changes
from hekla.cli.vcctl.options import Session
from hekla.cli.vcctl.output import field_at
from hekla.kube.resources import CONFIGMAPS
from hekla.units.durations import format_duration
from hekla.units.objects import Object

T = TypeVar("T")

BAR = 24
FULL, FREE = "█", "·"
NAMED = f"metadata.name={wellknown.FAIRSHARE_CONFIG_MAP}"


def find_usage_record(session: Session, namespace: str = "") -> Object:
    """Return the ConfigMap of the given namespace, else of the default one, else the only one."""
    client, name = session.client, wellknown.FAIRSHARE_CONFIG_MAP
    usual = namespace or wellknown.SYSTEM_NAMESPACE
    record = client.find(CONFIGMAPS, name, namespace=usual)
    if record is not None:
        return record
    others = [] if namespace else client.list(CONFIGMAPS, field_selector=NAMED).items
    if len(others) == 1:
        return others[0]
    if others:
        namespaces = sorted(one["metadata"]["namespace"] for one in others)
        raise CommandFailed(
            f"several schedulers record usage, in the namespaces {', '.join(namespaces)}",
            hint=f"choose one: --scheduler-namespace {namespaces[0]}",
        )
    where = f"namespace {namespace} has" if namespace else "there is"
    raise CommandFailed(
        f"usage is not recorded: {where} no ConfigMap {name}",
        hint="configure the scheduler's plugin fairshare; it records after a minute",
    )


def usage_record_changes(session: Session, account: Object) -> Iterator[Object]:
    """Yield every later state of the ConfigMap."""
    client, place = session.client, account["metadata"]["namespace"]
    # From a list: the object's own version may be too old to watch from.
    version = client.list(CONFIGMAPS, namespace=place, field_selector=NAMED).resource_version
    yield from changes(client, CONFIGMAPS, version, namespace=place, fields=NAMED)


def queues_of(account: Object) -> Queues:
    return _decoded(account, QUEUES_KEY, Queues)


def shares_of(account: Object) -> Shares:
    return _decoded(account, SHARES_KEY, Shares)


def _decoded(account: Object, key: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(field_at(account, "data", key) or "", type=kind)
    except msgspec.DecodeError as error:
        meta = account["metadata"]
        raise CommandFailed(
            f"ConfigMap {meta['namespace']}/{meta['name']}: {key} is invalid: {error}",
            hint="the scheduler rewrites it every minute; check that it runs and has this version",
        ) from error


def ranking(shares: Shares, level: str) -> Iterator[str]:
    """Yield namespaces or users, highest usage first."""
    usage: Mapping[str, float] = getattr(shares, level)
    shares_by_name = {_escaped(name): share for name, share in usage.items()}
    width = max(map(len, (level, *shares_by_name)))
    yield f"{level:<{width}}  usage"
    for name, share in sorted(shares_by_name.items(), key=lambda one: (-one[1], one[0])):
        yield f"{name:<{width}}  {_bar(share)} {share:>6.1%}"
    past = format_duration(shares.half_life_s)
    yield f"of the cluster; usage counts half after every {past}"


def _escaped(name: str) -> str:
    """User names come from manifests: escape control characters for the terminal."""
    return name if name.isprintable() else repr(name)


def _bar(share: float) -> str:
    # A non-zero value gets at least one block.
    cells = min(BAR, max(1 if share > 0 else 0, round(share * BAR)))
    return terminal.style(FULL * cells, fg="green") + FREE * (BAR - cells)
