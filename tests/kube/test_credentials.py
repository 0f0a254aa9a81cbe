"""Token files and exec plugins."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.credentials import (
    Auth,
    ClientCertificate,
    ExecCredentials,
    TokenFileCredentials,
    tls_context,
)
from hekla.kube.errors import ConfigError
from hekla.units.clock import ManualClock
from tests.kube.fake_server import Pki

V1 = "client.authentication.k8s.io/v1"


def token_of(auth: Auth) -> str:
    return dict(auth.headers)["Authorization"].removeprefix("Bearer ")


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFileCredentials(path, monotonic=clock.monotonic)
    assert credentials.may_block()
    assert token_of(credentials.current()) == "one"
    path.write_text("two")
    clock.skip(59)
    assert not credentials.may_block()
    assert token_of(credentials.current()) == "one"
    clock.skip(1)
    assert token_of(credentials.current()) == "two"


def test_token_file_may_be_missing_during_rotation(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    credentials = TokenFileCredentials(path, monotonic=clock.monotonic)
    credentials.current()
    path.unlink()
    clock.skip(60)
    assert token_of(credentials.current()) == "one"


def test_missing_token_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        TokenFileCredentials(tmp_path / "none").current()


def plugin(tmp_path: Path, answer: Any, before: str = "") -> str:
    """A plugin that prints `answer` and records its runs and its input."""
    text = answer if isinstance(answer, str) else json.dumps(answer)
    (tmp_path / "answer").write_text(text)
    path = tmp_path / "plugin"
    path.write_text(
        f"#!/bin/sh\necho run >> {tmp_path}/runs\n"
        f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n'
        f'printf %s "$EXTRA" > {tmp_path}/env\n'
        f"{before}\ncat {tmp_path}/answer\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text().splitlines())


def test_exec_plugin_token_is_cached_until_it_expires(tmp_path: Path, clock: ManualClock) -> None:
    answer = {
        "apiVersion": V1,
        "status": {"token": "t1", "expirationTimestamp": "2023-11-14T22:15:00Z"},
    }
    credentials = ExecCredentials(plugin(tmp_path, answer), now=clock.now)
    assert token_of(credentials.current()) == "t1"
    clock.skip(60)  # 22:14:20
    credentials.current()
    assert runs(tmp_path) == 1
    clock.skip(35)  # 22:14:55: it would expire during the request
    assert credentials.may_block()
    credentials.current()
    assert runs(tmp_path) == 2


def test_exec_plugin_gets_exec_info(tmp_path: Path) -> None:
    command = plugin(tmp_path, {"apiVersion": V1, "status": {"token": "t"}})
    ExecCredentials(command, env={"EXTRA": "yes"}, cluster={"server": "https://k"}).current()
    info = json.loads((tmp_path / "info").read_text())
    assert info["apiVersion"] == V1
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://k"}}
    assert (tmp_path / "env").read_text() == "yes"


def test_only_the_rejected_token_is_discarded(tmp_path: Path) -> None:
    credentials = ExecCredentials(plugin(tmp_path, {"apiVersion": V1, "status": {"token": "t"}}))
    auth = credentials.current()
    assert credentials.reject(Auth((("Authorization", "Bearer older"),)))
    credentials.current()
    assert runs(tmp_path) == 1
    credentials.reject(auth)
    credentials.current()
    assert runs(tmp_path) == 2


def test_exec_plugin_may_return_a_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    auth = ExecCredentials(plugin(tmp_path, {"apiVersion": V1, "status": status})).current()
    assert auth.certificate == ClientCertificate("CERT", "KEY")


BAD_ANSWERS = {
    "rubbish": ("top-secret rubbish", "not an ExecCredential"),
    "another version": ({"apiVersion": "other/v1", "status": {"token": "top-secret"}}, "other/v1"),
    "nothing": ({"apiVersion": V1}, "neither token nor certificate"),
    "half a certificate": ({"apiVersion": V1, "status": {"clientKeyData": "K"}}, "neither"),
    "a key alone": (
        {"apiVersion": V1, "status": {"token": "t", "clientKeyData": "K"}},
        "lacks the key",
    ),
    "no time": (
        {"apiVersion": V1, "status": {"token": "top-secret", "expirationTimestamp": "soon"}},
        "not a time",
    ),
}


@pytest.mark.parametrize("case", BAD_ANSWERS)
def test_invalid_exec_plugin_output_is_reported_without_quoting_it(
    tmp_path: Path, case: str
) -> None:
    answer, want_message = BAD_ANSWERS[case]
    with pytest.raises(ConfigError, match=want_message) as caught:
        ExecCredentials(plugin(tmp_path, answer)).current()
    assert "top-secret" not in str(caught.value)


def test_a_failing_plugin_is_named_with_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exit code 3"):
        ExecCredentials(plugin(tmp_path, "", before="exit 3")).current()


def test_missing_exec_plugin_is_reported_with_its_install_hint(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such program; get it at example"):
        ExecCredentials("no-such-program-x", install_hint="get it at example").current()


def test_a_plugin_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    command = plugin(tmp_path, "", before="sleep 600 & sleep 600")
    started = time.monotonic()
    with pytest.raises(ConfigError, match=r"no response within 0\.1 s"):
        ExecCredentials(command, timeout_s=0.1).current()
    assert time.monotonic() - started < 300, "they sleep for ten minutes"


def test_a_plugin_that_prints_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.kube.credentials.MAX_TOKEN_BYTES", 1000)
    with pytest.raises(ConfigError, match="more than 1000 bytes"):
        ExecCredentials(plugin(tmp_path, "", before="yes"), timeout_s=30).current()


def test_reprs_hide_secrets() -> None:
    auth = Auth((("Authorization", "Bearer top-secret"),), ClientCertificate("c", "top-secret"))
    assert "top-secret" not in repr(auth)
    assert "top-secret" not in repr(auth.certificate)


def test_invalid_certificates_are_refused() -> None:
    with pytest.raises(ConfigError, match="authority"):
        tls_context("rubbish", insecure=False, certificate=None)
    with pytest.raises(ConfigError, match="matching"):
        tls_context(None, insecure=True, certificate=ClientCertificate("rubbish", "rubbish"))


def test_no_key_is_left_on_disk(pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls_context(pki.ca_pem, insecure=False, certificate=pki.client)
    assert list(tmp_path.iterdir()) == []
