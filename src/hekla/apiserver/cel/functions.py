"""Kubernetes' CEL functions, as far as the evaluator can be extended.

The evaluator has no custom types, so a quantity, URL, address or version is a map with a marker,
and one function serves all types that have a method of the same name. Written by the documentation
of Kubernetes 1.36. Missing: `optional` results of methods (such as `regex.find` with groups),
`string()` of an address, and the authorizer.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from hekla.units.errors import QuantityError
from hekla.units.patterns import compile_pattern
from hekla.units.quantity import parse_quantity

_MARK: Final = "hekla.is"
Marked = dict[str, Any]


def _marked(kind: str, **fields: Any) -> Marked:
    return {_MARK: kind, **fields}


def _kind(value: Any) -> str:
    return str(value.get(_MARK, "")) if isinstance(value, dict) else ""


def _of(kind: str, value: Any, function: str) -> Marked:
    if _kind(value) != kind:
        raise ValueError(f"no such overload: {function} needs a {kind}")
    found: Marked = value
    return found


# --- lists ------------------------------------------------------------------------------------


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def _some(function: Callable[[Iterable[Any]], Any], name: str) -> Callable[[list[Any]], Any]:
    def of(items: list[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return function(items)

    return of


def _index_of(items: list[Any], value: Any) -> int:
    return next((i for i, item in enumerate(items) if item == value), -1)


def _last_index_of(items: list[Any], value: Any) -> int:
    return next((i for i in range(len(items) - 1, -1, -1) if items[i] == value), -1)


def _contains_all(items: list[Any], others: list[Any]) -> bool:
    return all(other in items for other in others)


def _intersects(items: list[Any], others: list[Any]) -> bool:
    return any(other in items for other in others)


# --- regular expressions ----------------------------------------------------------------------


def _find(text: str, pattern: str) -> str:
    return next(compile_pattern(pattern).matches_of(text), "")


def _find_all(text: str, pattern: str) -> list[str]:
    return list(compile_pattern(pattern).matches_of(text))


def _find_some(text: str, pattern: str, most: int) -> list[str]:
    matches = _find_all(text, pattern)
    return matches if most < 0 else matches[:most]


# --- quantities -------------------------------------------------------------------------------


def _quantity(text: str) -> Marked:
    return _marked("quantity", value=str(_exact(text)))


def _exact(text: str) -> Decimal:
    return Decimal(parse_quantity(text).nanos).scaleb(-9)


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _comparable(value: Any, function: str) -> Any:
    match _kind(value):
        case "quantity":
            return Decimal(value["value"])
        case "semver":
            return _semver_key(value)
    raise ValueError(f"no such overload: {function} needs a quantity or a semver")


def _compare_to(a: Any, b: Any) -> int:
    x, y = _comparable(a, "compareTo"), _comparable(b, "compareTo")
    return int(x > y) - int(x < y)


def _amount(value: Any) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    return Decimal(_of("quantity", value, "arithmetic")["value"])


def _is_integer(value: Any) -> bool:
    exact = Decimal(_of("quantity", value, "isInteger")["value"])
    return exact == exact.to_integral_value() and abs(exact) < 2**63


def _as_integer(value: Any) -> int:
    if not _is_integer(value):
        raise ValueError("cannot convert value to integer")
    return int(Decimal(value["value"]))


def _sign(value: Any) -> int:
    exact = Decimal(_of("quantity", value, "sign")["value"])
    return (exact > 0) - (exact < 0)


# --- versions ---------------------------------------------------------------------------------

_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?",
    re.ASCII,
)


def _semver(text: str) -> Marked:
    match = _SEMVER.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a semantic version")
    major, minor, patch, pre = match.groups()
    return _marked("semver", major=int(major), minor=int(minor), patch=int(patch), pre=pre or "")


def _semver_key(value: Marked) -> Any:
    pre = [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in value["pre"].split(".") if p]
    return value["major"], value["minor"], value["patch"], not pre, pre


# --- URLs and addresses -----------------------------------------------------------------------


def _url(text: str) -> Marked:
    parts = urlsplit(text)
    if not (parts.scheme or text.startswith("/")):
        raise ValueError(f"{text!r} is not a URL")
    return _marked("url", text=text)


def _is_url(text: str) -> bool:
    try:
        _url(text)
    except ValueError:
        return False
    return True


def _url_part(part: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    return lambda url: part(urlsplit(_of("url", url, name)["text"]))


def _host(parts: Any) -> str:
    return str(parts.netloc.rpartition("@")[2])


def _ip(text: str) -> Marked:
    address = ipaddress.ip_address(text)
    return _marked("ip", text=str(address))


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _cidr(text: str) -> Marked:
    ipaddress.ip_interface(text)
    if "/" not in text:
        raise ValueError(f"{text!r} is not a network in CIDR notation")
    return _marked("cidr", text=text)


def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except ValueError:
        return False
    return True


def _family(value: Any) -> int:
    return ipaddress.ip_address(_of("ip", value, "family")["text"]).version


def _ip_says(name: str, test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: test(ipaddress.ip_address(_of("ip", value, name)["text"]))


_LINK_LOCAL_MULTICAST = (
    ipaddress.ip_network("224.0.0.0/24"),
    ipaddress.ip_network("ff02::/16"),
)


def _is_link_local_multicast(address: Any) -> bool:
    return any(address in network for network in _LINK_LOCAL_MULTICAST)


def _is_global_unicast(address: Any) -> bool:
    """As Go's function: private addresses count."""
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


def _network(value: Any, function: str) -> Any:
    return ipaddress.ip_network(_of("cidr", value, function)["text"], strict=False)


def _contains_ip(network: Any, address: Any) -> bool:
    text = address if isinstance(address, str) else _of("ip", address, "containsIP")["text"]
    found = ipaddress.ip_address(text)
    holder = _network(network, "containsIP")
    return bool(found.version == holder.version and found in holder)


def _contains_cidr(network: Any, other: Any) -> bool:
    inner = _network(_cidr(other) if isinstance(other, str) else other, "containsCIDR")
    outer = _network(network, "containsCIDR")
    return bool(inner.version == outer.version and inner.subnet_of(outer))


# name, is a method, parameters, result, implementation
TABLE: Final[tuple[tuple[str, bool, tuple[str, ...], str, Callable[..., Any]], ...]] = (
    ("isSorted", True, ("list",), "bool", _is_sorted),
    ("sum", True, ("list",), "dyn", lambda items: sum(items)),
    ("min", True, ("list",), "dyn", _some(min, "min")),
    ("max", True, ("list",), "dyn", _some(max, "max")),
    ("indexOf", True, ("list", "dyn"), "int", _index_of),
    ("lastIndexOf", True, ("list", "dyn"), "int", _last_index_of),
    ("sets.contains", False, ("list", "list"), "bool", _contains_all),
    ("sets.intersects", False, ("list", "list"), "bool", _intersects),
    (
        "sets.equivalent",
        False,
        ("list", "list"),
        "bool",
        lambda a, b: _contains_all(a, b) and _contains_all(b, a),
    ),
    ("find", True, ("string", "string"), "string", _find),
    ("findAll", True, ("string", "string"), "strings", _find_all),
    ("findAll", True, ("string", "string", "int"), "strings", _find_some),
    ("quantity", False, ("string",), "dyn", _quantity),
    ("isQuantity", False, ("string",), "bool", _is_quantity),
    ("semver", False, ("string",), "dyn", _semver),
    ("isSemver", False, ("string",), "bool", lambda text: bool(_SEMVER.fullmatch(text))),
    ("major", True, ("dyn",), "int", lambda v: _of("semver", v, "major")["major"]),
    ("minor", True, ("dyn",), "int", lambda v: _of("semver", v, "minor")["minor"]),
    ("patch", True, ("dyn",), "int", lambda v: _of("semver", v, "patch")["patch"]),
    ("compareTo", True, ("dyn", "dyn"), "int", _compare_to),
    ("isGreaterThan", True, ("dyn", "dyn"), "bool", lambda a, b: _compare_to(a, b) > 0),
    ("isLessThan", True, ("dyn", "dyn"), "bool", lambda a, b: _compare_to(a, b) < 0),
    (
        "add",
        True,
        ("dyn", "dyn"),
        "dyn",
        lambda a, b: _marked("quantity", value=str(_amount(a) + _amount(b))),
    ),
    (
        "sub",
        True,
        ("dyn", "dyn"),
        "dyn",
        lambda a, b: _marked("quantity", value=str(_amount(a) - _amount(b))),
    ),
    ("isInteger", True, ("dyn",), "bool", _is_integer),
    ("asInteger", True, ("dyn",), "int", _as_integer),
    ("asApproximateFloat", True, ("dyn",), "double", lambda v: float(_amount(v))),
    ("sign", True, ("dyn",), "int", _sign),
    ("url", False, ("string",), "dyn", _url),
    ("isURL", False, ("string",), "bool", _is_url),
    ("getScheme", True, ("dyn",), "string", _url_part(lambda p: p.scheme, "getScheme")),
    ("getHost", True, ("dyn",), "string", _url_part(_host, "getHost")),
    ("getHostname", True, ("dyn",), "string", _url_part(lambda p: p.hostname or "", "getHostname")),
    ("getPort", True, ("dyn",), "string", _url_part(lambda p: str(p.port or ""), "getPort")),
    ("getEscapedPath", True, ("dyn",), "string", _url_part(lambda p: p.path, "getEscapedPath")),
    (
        "getQuery",
        True,
        ("dyn",),
        "dyn",
        _url_part(lambda p: parse_qs(p.query, keep_blank_values=True), "getQuery"),
    ),
    ("ip", False, ("string",), "dyn", _ip),
    ("isIP", False, ("string",), "bool", _is_ip),
    ("ip.isCanonical", False, ("string",), "bool", lambda t: _ip(t)["text"] == t),
    ("family", True, ("dyn",), "int", _family),
    ("isLoopback", True, ("dyn",), "bool", _ip_says("isLoopback", lambda a: a.is_loopback)),
    (
        "isUnspecified",
        True,
        ("dyn",),
        "bool",
        _ip_says("isUnspecified", lambda a: a.is_unspecified),
    ),
    (
        "isLinkLocalMulticast",
        True,
        ("dyn",),
        "bool",
        _ip_says("isLinkLocalMulticast", _is_link_local_multicast),
    ),
    (
        "isLinkLocalUnicast",
        True,
        ("dyn",),
        "bool",
        _ip_says("isLinkLocalUnicast", lambda a: a.is_link_local),
    ),
    (
        "isGlobalUnicast",
        True,
        ("dyn",),
        "bool",
        _ip_says("isGlobalUnicast", _is_global_unicast),
    ),
    ("cidr", False, ("string",), "dyn", _cidr),
    ("isCIDR", False, ("string",), "bool", _is_cidr),
    ("containsIP", True, ("dyn", "dyn"), "bool", _contains_ip),
    ("containsCIDR", True, ("dyn", "dyn"), "bool", _contains_cidr),
    ("prefixLength", True, ("dyn",), "int", lambda n: _network(n, "prefixLength").prefixlen),
    (
        "masked",
        True,
        ("dyn",),
        "dyn",
        lambda n: _marked("cidr", text=str(_network(n, "masked"))),
    ),
)
