"""RBAC: authorization by the Role and binding objects in the store.

Rules are compiled per subject and cached until a role or a binding changes; a check is a few
dictionary look-ups. `system:masters` may do everything, as in Kubernetes, so that an administrator
can repair a broken policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import MASTERS, User
from hekla.apiserver.request_info import RequestInfo
from hekla.apiserver.storage.store import Store
from hekla.units.selectors import LabelSelector

GROUP = "rbac.authorization.k8s.io"
_TABLES = tuple(
    f"{GROUP}/{plural}"
    for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
)

Rule = dict[str, Any]


@dataclass(slots=True)
class _Grant:
    rules: list[Rule]
    namespace: str  # "" for a cluster-wide grant
    because: str


class Authorizer:
    """Authorizes requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[tuple[str, str], list[_Grant]] = {}
        self._built_from: tuple[int, ...] = ()

    def allows(self, user: User, target: RequestInfo) -> tuple[bool, str]:
        """Return whether it is allowed, and a suffix for the refusal if the policy has errors."""
        if MASTERS in user.groups:
            return True, ""
        for grant in self._grants_of(user):
            if grant.namespace and grant.namespace != target.namespace:
                continue
            if any(covers(rule, target) for rule in grant.rules):
                return True, ""
        return False, ""

    def rules_for(self, user: User, namespace: str) -> list[Rule]:
        """Return all rules that apply to a user in a namespace."""
        if MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        return [
            rule
            for grant in self._grants_of(user)
            if grant.namespace in ("", namespace)
            for rule in grant.rules
        ]

    def check_escalation(self, user: User, obj: dict[str, Any], namespace: str) -> None:
        """Refuse rights that the user does not have, unless `escalate` or `bind` is allowed."""
        if MASTERS in user.groups:
            return
        kind = obj["kind"]
        name = obj["metadata"].get("name", "")
        if kind in ("Role", "ClusterRole"):
            plural, verb, rules = kind.lower() + "s", "escalate", obj.get("rules") or []
        else:
            ref = obj.get("roleRef") or {}
            plural, verb = str(ref.get("kind", "")).lower() + "s", "bind"
            rules = self._role_rules(ref, namespace)
            name = ref.get("name", "")
        if self.allows(user, RequestInfo(verb, GROUP, "v1", namespace, plural, name))[0]:
            return
        mine = self.rules_for(user, namespace)
        missing = [rule for rule in rules if not _contained(rule, mine)]
        if missing:
            raise errors.forbidden(
                GROUP,
                plural,
                obj["metadata"].get("name", ""),
                f'user "{user.name}" is attempting to grant RBAC permissions not currently held: '
                f"{msgspec.json.encode(missing[:3]).decode()}",
            )

    def _grants_of(self, user: User) -> Iterator[_Grant]:
        self._refresh()
        yield from self._grants.get(("User", user.name), ())
        for group in user.groups:
            yield from self._grants.get(("Group", group), ())

    def _refresh(self) -> None:
        state = tuple(self._store.table(table).watch_cache.newest for table in _TABLES)
        if state == self._built_from:
            return
        grants: dict[tuple[str, str], list[_Grant]] = {}
        for binding in self._objects(f"{GROUP}/clusterrolebindings"):
            self._grant(grants, binding, "")
        for binding in self._objects(f"{GROUP}/rolebindings"):
            self._grant(grants, binding, binding["metadata"]["namespace"])
        self._grants, self._built_from = grants, state

    def _grant(
        self, grants: dict[tuple[str, str], list[_Grant]], binding: dict[str, Any], namespace: str
    ) -> None:
        rules = self._role_rules(binding["roleRef"], namespace)
        if not rules:
            return
        grant = _Grant(rules, namespace, binding["metadata"]["name"])
        for subject in binding.get("subjects") or ():
            kind, name = subject["kind"], subject["name"]
            if kind == "ServiceAccount":
                where = subject.get("namespace") or namespace
                kind, name = "User", f"system:serviceaccount:{where}:{name}"
            grants.setdefault((kind, name), []).append(grant)

    def _role_rules(self, ref: dict[str, Any], namespace: str) -> list[Rule]:
        if ref.get("kind") == "Role":
            entry = self._store.get(f"{GROUP}/roles", f"{namespace}/{ref.get('name')}")
        else:
            entry = self._store.get(f"{GROUP}/clusterroles", str(ref.get("name")))
        if entry is None:
            return []
        role = msgspec.json.decode(entry.body)
        aggregation = role.get("aggregationRule")
        if aggregation:
            return self._aggregated(aggregation)
        return role.get("rules") or []

    def _aggregated(self, aggregation: dict[str, Any]) -> list[Rule]:
        """Return the rules of an aggregated ClusterRole."""
        selectors = [
            LabelSelector.from_dict(selector)
            for selector in aggregation.get("clusterRoleSelectors") or ()
        ]
        return [
            rule
            for role in self._objects(f"{GROUP}/clusterroles")
            if not role.get("aggregationRule")
            and any(s.matches(role["metadata"].get("labels") or {}) for s in selectors)
            for rule in role.get("rules") or ()
        ]

    def _objects(self, table: str) -> Iterator[dict[str, Any]]:
        for entry in self._store.table(table).entries.values():
            yield msgspec.json.decode(entry.body)


def _has(allowed: Iterable[str] | None, wanted: str) -> bool:
    return allowed is not None and (wanted in allowed or "*" in allowed)


def covers(rule: Rule, target: RequestInfo) -> bool:
    """Return whether a rule allows a request."""
    if not _has(rule.get("verbs"), target.verb):
        return False
    if not target.is_resource:
        return any(_path_matches(path, target.path) for path in rule.get("nonResourceURLs") or ())
    if not _has(rule.get("apiGroups"), target.group):
        return False
    resources = rule.get("resources") or ()
    wanted = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    if (
        wanted not in resources
        and "*" not in resources
        and not (target.subresource and f"*/{target.subresource}" in resources)
    ):
        return False
    names = rule.get("resourceNames")
    return not names or target.name in names


def _path_matches(pattern: str, path: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return path.rstrip("/") == pattern.rstrip("/")


def _contained(rule: Rule, mine: list[Rule]) -> bool:
    """Return whether `mine` grants each right of `rule`."""
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            if not any(covers(own, RequestInfo(verb, path=path)) for own in mine):
                return False
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                plural, _, subresource = resource.partition("/")
                for name in rule.get("resourceNames") or ("",):
                    target = RequestInfo(verb, group, "", "", plural, name, subresource)
                    if not any(_grants_all(own, target) for own in mine):
                        return False
    return True


def _grants_all(own: Rule, target: RequestInfo) -> bool:
    if not target.name and own.get("resourceNames"):
        return False
    return covers(own, target)
