"""The section `metrics` of the configuration: the source of node loads and the poll interval.

The keys are Volcano's. They may be flat (`elasticsearch.index: x`) or nested maps. `metrics-api` is
hekla's own: what `kubectl top nodes` shows.

Note: the configuration may contain a password, and its text goes into the decision log. Write it
there through `without_password`. No error in this module quotes a value that may contain it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from hekla.scheduler.state.load import STALE_S
from hekla.units import bounded_yaml
from hekla.units.durations import DurationError, parse_duration

PROMETHEUS: Final = "prometheus"
ADAPTOR: Final = "prometheus_adaptor"
ELASTICSEARCH: Final = "elasticsearch"
METRICS_API: Final = "metrics-api"
TYPES: Final = (PROMETHEUS, ADAPTOR, ELASTICSEARCH, METRICS_API)

SHORTEST_S: Final = 1.0
PASSWORD: Final = "elasticsearch.password"
KEYS: Final = (
    "type",
    "address",
    "interval",
    "tls.insecureSkipVerify",
    "elasticsearch.index",
    "elasticsearch.hostnameFieldName",
    "elasticsearch.username",
    PASSWORD,
)
INDEX: Final = "metricbeat-*"
HOSTNAME_FIELD: Final = "host.hostname"
NOT_WRITTEN: Final = "(not written)"
_INDEX: Final = re.compile(r"[^\s/?#\\\"<>|%]+")
_FIELD: Final = re.compile(r"[A-Za-z0-9_.@-]+")


class SettingError(Exception):
    """A refused value; `key` is its name."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"metrics: {key} {text}")
        self.key = key


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The source of node loads."""

    type: str = PROMETHEUS
    address: str = ""
    interval_s: float = 30.0
    insecure: bool = False
    """Whether the source's certificate is not verified."""
    index: str = INDEX
    hostname_field: str = HOSTNAME_FIELD
    username: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_in_cluster(self) -> bool:
        """Whether it is read through the API server, with the scheduler's own permissions."""
        return self.type in (ADAPTOR, METRICS_API)

    @property
    def name(self) -> str:
        """The name in log messages."""
        return self.type if self.is_in_cluster else f"{self.type} at {self.address}"


def flat(section: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested maps into one map with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def read(section: Mapping[Any, Any]) -> MetricsSource:
    """Parse the section; SettingError names the error and a correct value."""
    given = {key: value for key, value in flat(section).items() if value is not None}
    for key in given:
        if key.startswith(f"{PASSWORD}."):
            raise SettingError(PASSWORD, "must be text; put it in quotes")
        if key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(KEYS)}"
            raise SettingError(key, f"is unknown; {hint}")
    kind = _text(given, "type", PROMETHEUS)
    if kind not in TYPES:
        raise SettingError("type", f"is {kind!r}; choose one of {', '.join(TYPES)}")
    source = MetricsSource(
        type=kind,
        address=_address(given) if kind in (PROMETHEUS, ELASTICSEARCH) else "",
        interval_s=_interval(_text(given, "interval", "30s")),
        insecure=_flag(given, "tls.insecureSkipVerify"),
        index=_matching(given, "elasticsearch.index", INDEX, _INDEX),
        hostname_field=_matching(given, "elasticsearch.hostnameFieldName", HOSTNAME_FIELD, _FIELD),
        username=_text(given, "elasticsearch.username", ""),
        password=_text(given, PASSWORD, ""),
    )
    if ":" in source.username:
        raise SettingError("elasticsearch.username", "holds a colon; HTTP allows none there")
    if bool(source.username) != bool(source.password):
        missing = PASSWORD if source.username else "elasticsearch.username"
        raise SettingError(missing, "is missing; give both or none")
    return source


def warnings(section: Mapping[Any, Any], source: MetricsSource) -> list[str]:
    """Return warnings about a valid section."""
    found = []
    if source.is_in_cluster and "address" in section:
        found.append(
            f"address has no effect with type {source.type}: loads are read through the API server"
        )
    if source.insecure:
        found.append("tls.insecureSkipVerify: anybody on the way can make up the load of nodes")
    if source.password and source.address.startswith("http:"):
        found.append(f"{PASSWORD} travels unencrypted; use an https address")
    return found


def without_password(text: str) -> str:
    """Return a valid configuration without the password.

    The text is serialized again if it has one, so that no comment or alias keeps a copy.
    """
    if "password" not in text:
        return text
    whole = bounded_yaml.load(text, bounded_yaml.CONFIG)
    section = whole.get("metrics") if isinstance(whole, dict) else None
    if not isinstance(section, dict) or not flat(section).get(PASSWORD):
        return text
    whole["metrics"] = {**flat(section), PASSWORD: NOT_WRITTEN}
    return yaml.safe_dump(whole, sort_keys=False)


def _text(given: Mapping[str, Any], key: str, default: str) -> str:
    value = given.get(key, default)
    if not isinstance(value, str):
        raise SettingError(key, "must be text; put it in quotes")
    return value


def _flag(given: Mapping[str, Any], key: str) -> bool:
    value = str(given.get(key, "false")).lower()
    if value not in ("true", "false"):
        raise SettingError(key, f'must be "true" or "false", not {value!r}')
    return value == "true"


def _matching(given: Mapping[str, Any], key: str, default: str, form: re.Pattern[str]) -> str:
    value = _text(given, key, default) or default
    if not (form.fullmatch(value) and value.isascii() and value.isprintable()):
        raise SettingError(key, f"must be a plain name like {default!r}, not {value!r}")
    return value


def _interval(text: str) -> float:
    try:
        found_s = parse_duration(text)
    except DurationError as error:
        raise SettingError("interval", f"is refused: {error}") from None
    if not SHORTEST_S <= found_s <= STALE_S:
        raise SettingError(
            "interval",
            f"must be from {SHORTEST_S:g}s to {STALE_S:g}s, not {text!r}: "
            f"readings older than {STALE_S:g}s do not count",
        )
    return found_s


def _address(given: Mapping[str, Any]) -> str:
    text = _text(given, "address", "")
    if not text:
        raise SettingError("address", "is missing; write for example http://prometheus:9090")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not (is_good and text.isascii() and text.isprintable() and " " not in text):
        raise SettingError("address", "must be like http://host:port")  # a password may be in it
    if parts.username is not None or parts.password is not None:
        raise SettingError(
            "address",
            f"must not hold a user or password; use elasticsearch.username and {PASSWORD}",
        )
    if parts.query or parts.fragment:
        raise SettingError("address", "must end with a host, a port or a path")
    return text.rstrip("/")
