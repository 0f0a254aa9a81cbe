"""Access, token and self reviews: requests that are answered and not stored."""

from __future__ import annotations

from hekla.apiserver import errors
from hekla.apiserver.auth.authenticator import Authenticator, User
from hekla.apiserver.auth.rbac import Authorizer
from hekla.apiserver.auth.tokens import ISSUER, TokenIssuer
from hekla.apiserver.endpoints import bodies
from hekla.apiserver.endpoints.messages import Request, Response
from hekla.apiserver.request_info import RequestInfo
from hekla.apiserver.schema.kinds import Served
from hekla.units.objects import Object


class AccessReviews:
    def __init__(
        self, authorizer: Authorizer, authenticator: Authenticator, issuer: TokenIssuer
    ) -> None:
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._issuer = issuer

    async def handle(self, served: Served, request: Request) -> Response:
        if request.target.verb != "create":
            raise errors.method_not_allowed()
        requested = bodies.read(request.body, request.content_type, None)
        if not isinstance(requested, dict):
            raise errors.bad_request(f"a {served.kind.kind} must be a JSON object")
        spec = requested.get("spec") or {}
        if not isinstance(spec, dict):
            raise errors.bad_request(f"spec of a {served.kind.kind} must be an object")
        status = self._status(served.kind.kind, spec, request)
        answer = {
            "kind": served.kind.kind,
            "apiVersion": served.kind.api_version,
            "metadata": requested.get("metadata") or {"creationTimestamp": None},
            "spec": spec,
            "status": status,
        }
        if served.kind.kind == "SelfSubjectReview":
            del answer["spec"]
        return Response.of(answer, 201)

    def _status(self, kind: str, spec: Object, request: Request) -> Object:
        match kind:
            case "SelfSubjectAccessReview":
                return self._access(request.user, spec)
            case "SubjectAccessReview" | "LocalSubjectAccessReview":
                groups = tuple(spec.get("groups") or ())
                if not spec.get("user") and not groups:
                    raise errors.bad_request("spec.user or spec.groups must be given")
                if kind.startswith("Local"):
                    self._check_namespace(spec, request.target.namespace)
                return self._access(User(spec.get("user") or "", groups), spec)
            case "SelfSubjectRulesReview":
                return self._rules(request.user, spec.get("namespace") or "default")
            case "SelfSubjectReview":
                return {"userInfo": _user_info(request.user)}
            case "TokenReview":
                return self._token(spec)
        raise errors.no_such_path()

    def _check_namespace(self, spec: Object, namespace: str) -> None:
        given = (spec.get("resourceAttributes") or {}).get("namespace")
        if given != namespace:
            raise errors.bad_request(
                f"spec.resourceAttributes.namespace must be {namespace!r}, "
                "the namespace of the request"
            )

    def _access(self, user: User, spec: Object) -> Object:
        resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (resource is None) == (path is None):
            raise errors.bad_request(
                "exactly one of spec.resourceAttributes and spec.nonResourceAttributes is needed"
            )
        if resource is not None:
            target = RequestInfo(
                verb=resource.get("verb", ""),
                group=resource.get("group", ""),
                version=resource.get("version", ""),
                namespace=resource.get("namespace", ""),
                plural=resource.get("resource", ""),
                name=resource.get("name", ""),
                subresource=resource.get("subresource", ""),
            )
        else:
            assert path is not None
            target = RequestInfo(verb=path.get("verb", ""), path=path.get("path", ""))
        allowed, _ = self._authorizer.allows(user, target)
        return {"allowed": allowed}

    def _rules(self, user: User, namespace: str) -> Object:
        rules = self._authorizer.rules_for(user, namespace)
        return {
            "resourceRules": [
                {key: rule[key] for key in ("verbs", "apiGroups", "resources", "resourceNames")
                 if key in rule}
                for rule in rules if rule.get("resources")
            ],
            "nonResourceRules": [
                {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
                for rule in rules if rule.get("nonResourceURLs")
            ],
            "incomplete": False,
        }  # fmt: skip

    def _token(self, spec: Object) -> Object:
        token = spec.get("token") or ""
        wanted = spec.get("audiences") or [ISSUER]
        claims = self._issuer.verify(token)
        if claims is not None:
            shared = [audience for audience in wanted if audience in claims["aud"]]
            if not shared:
                return {"authenticated": False, "error": "token audiences do not match"}
            user = self._issuer.user_of(claims)
            return {"authenticated": True, "user": _user_info(user), "audiences": shared}
        found = self._authenticator.user_for(f"Bearer {token}") if token else None
        if found is None:
            return {"authenticated": False, "error": "the token is not valid"}
        return {"authenticated": True, "user": _user_info(found), "audiences": wanted}


def _user_info(user: User) -> Object:
    info: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = dict(user.extra)
    return info
