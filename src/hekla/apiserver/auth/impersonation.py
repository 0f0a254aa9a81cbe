"""Impersonation (`kubectl --as`): act as another user, group, UID or extra field.

Each part needs the verb `impersonate` on its own resource, as in kube-apiserver: `users`, `groups`,
`serviceaccounts` (in the account's namespace), and `uids` and `userextras/KEY` of
`authentication.k8s.io`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import unquote

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
    service_account_groups,
    split_service_account,
)
from hekla.apiserver.request_info import RequestInfo

_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def impersonated(
    user: User, headers: Mapping[str, str], authorize: Callable[[User, RequestInfo], None]
) -> User:
    """Return the user of a request. `authorize` raises where a right is missing.

    Values of repeated headers are separated by newlines.
    """
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    groups = tuple(headers[_GROUP].split("\n")) if _GROUP in headers else ()
    extra = {
        unquote(header.removeprefix(_EXTRA)): values.split("\n")
        for header, values in headers.items()
        if header.startswith(_EXTRA)
    }
    if not name:
        if groups or extra or uid:
            raise errors.bad_request(
                "groups, a UID or extra fields are requested without impersonating a user; set "
                "Impersonate-User, too"
            )
        return user
    account = split_service_account(name)
    if account is None:
        authorize(user, RequestInfo("impersonate", plural="users", name=name))
    else:
        where, named = account
        authorize(user, RequestInfo("impersonate", "", "v1", where, "serviceaccounts", named))
    for group in groups:
        authorize(user, RequestInfo("impersonate", plural="groups", name=group))
    for key, values in extra.items():
        for value in values:
            target = RequestInfo("impersonate", _AUTHENTICATION, "v1", "", "userextras", value, key)
            authorize(user, target)
    if uid:
        authorize(user, RequestInfo("impersonate", _AUTHENTICATION, "v1", "", "uids", uid))
    if account is not None and not groups:
        groups = service_account_groups(account[0])
    return User(name, _with_authenticated(name, groups), uid, extra)


def _with_authenticated(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED)
