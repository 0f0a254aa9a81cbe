"""`/livez`, `/readyz` and `/healthz`, whole and check by check, as kube-apiserver.

`?verbose` lists the checks, `?exclude=NAME` leaves one out, and `/livez/NAME` runs one alone. A
failed check answers 500. Reasons are in the server's log only: these paths need no token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from hekla.apiserver.endpoints.messages import Response
from hekla.apiserver.request_info import Query

log = logging.getLogger("hekla.apiserver")

PLAIN = "text/plain; charset=utf-8"
Check = Callable[[], str]
"""Returns why it fails; empty if it passes."""


class Health:
    """The checks of each health path, by name."""

    def __init__(self, live: Mapping[str, Check], ready: Mapping[str, Check]) -> None:
        live = {"ping": lambda: "", **live}
        self._paths = {"healthz": live, "livez": live, "readyz": {**live, **ready}}

    def answer(self, path: str, query: Query) -> Response | None:
        """Return the response to a health path; None for any other path."""
        _, root, *rest = path.split("/", 2) if path.startswith("/") else ("", "")
        checks = self._paths.get(root)
        if checks is None:
            return None
        name = rest[0] if rest else ""
        if not name:
            excluded = query.repeated.get("exclude", [])
            return self._all(root, checks, excluded, verbose="verbose" in query.values)
        if name not in checks:
            return _plain(404, "404 page not found\n")
        if why := checks[name]():
            log.warning("%s/%s failed: %s", root, name, why)
            return _plain(500, f"internal server error: {name} failed: reason withheld\n")
        return _plain(200, "ok")

    def _all(
        self, root: str, checks: Mapping[str, Check], excluded: Sequence[str], *, verbose: bool
    ) -> Response:
        lines, failed = [], []
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
            elif why := check():
                failed.append(f"{name}: {why}")
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        unknown = [name for name in excluded if name not in checks]
        if unknown:
            listed = ", ".join(f'"{name[:80]}"' for name in unknown)
            lines.append(f"warn: excluded checks do not exist: {listed}")
        if failed:
            log.warning("%s failed: %s", root, "; ".join(failed))
            return _plain(500, "\n".join([*lines, f"{root} check failed", ""]))
        if verbose:
            return _plain(200, "\n".join([*lines, f"{root} check passed", ""]))
        return _plain(200, "ok")


def _plain(status: int, text: str) -> Response:
    response = Response(status, text.encode(), PLAIN)
    response.headers.append(("x-content-type-options", "nosniff"))
    return response
