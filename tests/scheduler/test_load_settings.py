"""The section `metrics`: valid and refused settings, and the secrecy of its password."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml

from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework import config
from hekla.scheduler.framework.load_source import NOT_WRITTEN, MetricsSource, without_password
from hekla.scheduler.plugins import builtin
from hekla.scheduler.service.decision_log import DecisionLog
from hekla.scheduler.service.replay import replay

from .test_decision_log import lines_of
from .test_service import configure
from .world import World

HEAD = """\
actions: "allocate, shuffle"
tiers:
- plugins: [{name: gang}, {name: usage}, {name: predicates}]
metrics:
"""
SECRET = "hunter2"
SEARCHED = f"""\
  type: elasticsearch
  address: https://elastic:9200
  elasticsearch.username: reader
  elasticsearch.password: {SECRET}
"""


def parsed(section: str) -> config.Config:
    return config.parse(HEAD + section, builtin())


def test_defaults_are_volcanos() -> None:
    assert parsed("  address: http://prometheus:9090/\n").metrics == MetricsSource(
        type="prometheus", address="http://prometheus:9090", interval_s=30.0
    )


@pytest.mark.parametrize("is_flat", [True, False])
def test_keys_may_be_flat_or_maps_within_maps(is_flat: bool) -> None:
    section = {
        "type": "elasticsearch",
        "address": "https://elastic:9200/path",
        "interval": "1m",
        "tls.insecureSkipVerify": "true",
        "elasticsearch.index": "beats-*,more",
        "elasticsearch.hostnameFieldName": "agent.hostname",
        "elasticsearch.username": "reader",
        "elasticsearch.password": SECRET,
    }
    nested = {
        **{key: value for key, value in section.items() if "." not in key},
        "tls": {"insecureSkipVerify": True},
        "elasticsearch": {
            key.removeprefix("elasticsearch."): value
            for key, value in section.items()
            if key.startswith("elasticsearch.")
        },
    }
    whole = yaml.safe_load(HEAD) | {"metrics": section if is_flat else nested}
    found = config.parse(yaml.safe_dump(whole), builtin())
    assert found.metrics == MetricsSource(
        type="elasticsearch",
        address="https://elastic:9200/path",
        interval_s=60.0,
        insecure=True,
        index="beats-*,more",
        hostname_field="agent.hostname",
        username="reader",
        password=SECRET,
    )
    (warning,) = found.warnings
    assert "make up the load of nodes" in warning
    assert SECRET not in repr(found)


@pytest.mark.parametrize("kind", ["prometheus_adaptor", "metrics-api"])
def test_the_api_server_needs_no_address(kind: str) -> None:
    found = parsed(f"  type: {kind}\n  address: http://nowhere\n")
    assert found.metrics == MetricsSource(type=kind)
    assert f"address has no effect with type {kind}" in found.warnings[0]


REFUSED = {
    "an unknown type": ("  type: influx\n", "line 5: metrics: type is 'influx'; choose one of"),
    "no address": ("  type: prometheus\n", "metrics: address is missing; write for example"),
    "an address that is none": ("  address: prometheus:9090\n", "address must be like http://host"),
    "a port that is none": ("  address: http://prometheus:x\n", "address must be like http://host"),
    "a password in the address": (
        f"  address: http://me:{SECRET}@prometheus\n",
        "address must not hold a user or password",
    ),
    "a query in the address": ("  address: http://p/?a=b\n", "address must end with a host"),
    "an interval that is none": (
        "  address: http://p\n  interval: soon\n",
        "line 6: metrics: interval is refused",
    ),
    "an interval longer than readings count": (
        "  address: http://p\n  interval: 10m\n",
        "interval must be from 1s to 300s, not '10m'",
    ),
    "an interval of nothing": ("  address: http://p\n  interval: 0s\n", "interval must be from"),
    "an interval without a unit": ("  address: http://p\n  interval: 30\n", "must be text; put it"),
    "a flag that is none": (
        "  address: http://p\n  tls: {insecureSkipVerify: maybe}\n",
        'line 6: metrics: tls.insecureSkipVerify must be "true" or "false"',
    ),
    "an unknown key": (
        "  address: http://p\n  intervall: 30s\n",
        "line 6: metrics: intervall is unknown; did you mean 'interval'?",
    ),
    "an index that would be another path": (
        "  type: elasticsearch\n  address: http://e\n  elasticsearch.index: a/_delete\n",
        "elasticsearch.index must be a plain name",
    ),
    "a user without a password": (
        "  type: elasticsearch\n  address: http://e\n  elasticsearch.username: me\n",
        "elasticsearch.password is missing; give both or none",
    ),
    "a section that is a list": ("- type: prometheus\n", "metrics must be a map"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_section_is_refused_with_its_key_and_what_to_write(case: str) -> None:
    section, want = REFUSED[case]
    with pytest.raises(ConfigError) as caught:
        parsed(section)
    assert want in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "written",
    ["*hunter2", "!hunter2 x", "[hunter2", "{hunter2: 1}", "'hunter2", "12345", "\n    *hunter2"],
)
def test_no_error_quotes_a_badly_written_password(written: str) -> None:
    section = SEARCHED.replace(SECRET, written)
    with pytest.raises(ConfigError) as caught:
        parsed(section)
    assert SECRET not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize(
    "section",
    [
        SEARCHED + f"# was {SECRET} before\n",
        SEARCHED.replace(SECRET, f"&pw {SECRET}") + "  elasticsearch.index: x\n",
        SEARCHED.replace(SECRET, f"|-\n    {SECRET}"),
        f"  {{type: elasticsearch, address: 'https://e', elasticsearch: {{username: u, password: "
        f"{SECRET}}}}}\n",
    ],
)
def test_the_text_without_its_password_means_the_same(section: str) -> None:
    shown = without_password(HEAD + section)
    assert SECRET not in shown
    was, again = parsed(section), config.parse(shown, builtin())
    assert was.metrics is not None
    assert was.metrics.password == SECRET
    assert again.metrics is not None
    assert again.metrics.password == NOT_WRITTEN
    assert (again.actions, again.tiers) == (was.actions, was.tiers)


def test_a_text_without_a_password_stays_as_it_is() -> None:
    text = HEAD + "  address: http://p # no password here\n"
    assert without_password(text) is text


def test_plugins_without_effect_are_warned_about() -> None:
    text = 'actions: "allocate"\ntiers:\n- plugins: [{name: usage}, {name: rescheduling}]\n'
    first, second, third = config.parse(text, builtin()).warnings
    assert "plugin 'usage' has no effect: it knows of no load" in first
    assert "plugin 'rescheduling' has no effect: it knows of no load" in second
    assert "add the action shuffle" in third


async def test_the_decision_log_and_the_log_never_hold_the_password(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "decisions"
    log = DecisionLog(path)
    section = SEARCHED.replace("https://elastic:9200", "https://127.0.0.1:1")
    await configure(world, HEAD + section)
    scheduler = await world.scheduler(decision_log=log)
    await world.node("n1", 2)
    await world.gang("a", 1)
    await world.bound("a-0")
    await scheduler.turns(lambda: scheduler.config.metrics is not None)
    await configure(world, HEAD + section.replace("interval", "x") + "  interval: never\n")
    await world.gang("b", 1)
    await world.bound("a-0", "b-0")
    log.flush()
    assert scheduler.config.metrics is not None, "the last good one stays"
    assert scheduler.config.metrics.password == SECRET
    texts = [line["configuration"] for line in lines_of(path) if line["type"] == "cycle"]
    assert any(NOT_WRITTEN in (text or "") for text in texts)
    assert SECRET not in str(lines_of(path))
    assert SECRET not in caplog.text
    assert "interval is refused" in caplog.text
    assert all(outcome.is_same for outcome in replay(path, builtin()))
    log.close()
