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
EVERYTHING: list[Rule] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]


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
            return EVERYTHING
        return [
            rule
            for grant in self._grants_of(user)
            if grant.namespace in ("", namespace)
            for rule in grant.rules
        ]

    def check_escalation(
        self, user: User, obj: dict[str, Any], old: dict[str, Any] | None, namespace: str
    ) -> None:
        """Refuse rights that the user does not have, unless `escalate` or `bind` is allowed."""
        if MASTERS in user.groups or (old is not None and _same_but_for_collection(obj, old)):
            return
        if obj["kind"] in ("Role", "ClusterRole"):
            self._check_role(user, obj, old, namespace)
        else:
            self._check_binding(user, obj, namespace)

    def _check_role(
        self, user: User, role: dict[str, Any], old: dict[str, Any] | None, namespace: str
    ) -> None:
        plural, name = f"{role['kind'].lower()}s", role["metadata"].get("name", "")
        # As upstream, a new object has no name yet when `escalate` is checked.
        target = RequestInfo("escalate", GROUP, "v1", namespace, plural, name if old else "")
        if self.allows(user, target)[0]:
            return
        self._check_held(user, role.get("rules") or [], namespace, plural, name)
        # An aggregation rule can select any role, now or later.
        if (_is_aggregated(role) or (old is not None and _is_aggregated(old))) and not all(
            _contained(rule, self.rules_for(user, "")) for rule in EVERYTHING
        ):
            raise errors.forbidden(
                GROUP,
                plural,
                name,
                "must have cluster-admin privileges to use the aggregationRule",
            )

    def _check_binding(self, user: User, binding: dict[str, Any], namespace: str) -> None:
        plural, name = f"{binding['kind'].lower()}s", binding["metadata"].get("name", "")
        ref = binding.get("roleRef") or {}
        roles, role = f"{str(ref.get('kind', '')).lower()}s", str(ref.get("name", ""))
        if self.allows(user, RequestInfo("bind", GROUP, "v1", namespace, roles, role))[0]:
            return
        rules = self._role_rules(ref, namespace)
        if rules is None:
            # Anything could be created under that name after the binding.
            raise errors.not_found(GROUP, roles, role)
        self._check_held(user, rules, namespace, plural, name)

    def _check_held(
        self, user: User, rules: list[Rule], namespace: str, plural: str, name: str
    ) -> None:
        mine = self.rules_for(user, namespace)
        missing = [rule for rule in rules if not _contained(rule, mine)]
        if missing:
            raise errors.forbidden(
                GROUP,
                plural,
                name,
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

    def _role_rules(self, ref: dict[str, Any], namespace: str) -> list[Rule] | None:
        """Return the rules of a role; None if it does not exist."""
        if ref.get("kind") == "Role":
            entry = self._store.get(f"{GROUP}/roles", f"{namespace}/{ref.get('name')}")
        else:
            entry = self._store.get(f"{GROUP}/clusterroles", str(ref.get("name")))
        if entry is None:
            return None
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


def _is_aggregated(role: dict[str, Any]) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _same_but_for_collection(obj: dict[str, Any], old: dict[str, Any]) -> bool:
    """Return whether an update changes only what garbage collection needs, as upstream."""
    return _without_collection(obj) == _without_collection(old)


def _without_collection(obj: dict[str, Any]) -> dict[str, Any]:
    ignored = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")
    metadata = {k: v for k, v in obj["metadata"].items() if k not in ignored}
    return {**obj, "metadata": metadata}


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
