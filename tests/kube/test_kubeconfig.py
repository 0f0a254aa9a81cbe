"""Kubeconfig files, lists of files, and in-cluster configuration."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from hekla.kube.errors import ConfigError
from hekla.kube.kubeconfig import ClusterConfig, Kubeconfig, load, write_kubeconfig


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def write(path: Path, cluster: Any = None, user: Any = None, **more: Any) -> Path:
    """A kubeconfig with one context `c`."""
    content = {
        "current-context": "c",
        "clusters": [{"name": "k", "cluster": cluster or {"server": "https://k:6443"}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "ml"}}],
        **more,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def headers(config: Any) -> dict[str, str]:
    return dict(config.credentials.current().headers)


def test_an_explicit_path_wins(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    config = load(path, environ={"KUBECONFIG": "/nowhere"})
    assert (config.server, config.namespace, config.context) == ("https://k:6443", "ml", "c")


def test_files_in_the_environment_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "1", {"server": "https://first"})
    second = write(
        tmp_path / "2",
        {"server": "https://second"},
        contexts=[{"name": "other", "context": {"cluster": "k", "user": "u"}}],
    )
    listed = os.pathsep.join([str(first), str(tmp_path / "missing"), str(second)])
    config = load(environ={"KUBECONFIG": listed}, context="other")
    assert config.server == "https://first"
    assert config.namespace == "default"
    assert Kubeconfig([first, second]).contexts == ["c", "other"]


def test_the_home_directory_comes_next_and_then_the_pod(tmp_path: Path) -> None:
    write(tmp_path / ".kube" / "config")
    assert load(environ={}, home=tmp_path).server == "https://k:6443"
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("pod-token\n")
    (account / "ca.crt").write_text("CA")
    (account / "namespace").write_text("spark\n")
    config = load(
        environ={"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"},
        home=tmp_path / "nobody",
        service_account_dir=account,
    )
    assert (config.server, config.namespace) == ("https://[fd00::1]:443", "spark")
    assert headers(config) == {"Authorization": "Bearer pod-token"}


def test_missing_configuration_lists_the_searched_places(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\.kube/config does not exist.*hekla up"):
        load(environ={}, home=tmp_path)
    with pytest.raises(ConfigError, match="no such file exists"):
        load(environ={"KUBECONFIG": "/no/such"}, home=tmp_path)


def test_a_kubeconfig_in_a_directory_of_another_user_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    path = closed / "kubeconfig"
    path.touch()
    closed.chmod(0)
    before = os.geteuid()
    try:
        if before == 0:
            os.seteuid(65534)  # root enters every directory
        with pytest.raises(ConfigError, match=f"kubeconfig {path}: Permission denied"):
            load(environ={"KUBECONFIG": str(path)}, home=tmp_path)
    finally:
        os.seteuid(before)
        closed.chmod(0o700)


def test_paths_are_relative_to_the_kubeconfig_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    path = write(
        tmp_path / "deep" / "config",
        {"server": "https://k", "certificate-authority": "pki/ca.crt"},
        {"tokenFile": "token", "client-certificate": "me.crt", "client-key": "me.key"},
    )
    (tmp_path / "deep" / "pki").mkdir()
    for name, text in {
        "pki/ca.crt": "CA",
        "token": "from-file",
        "me.crt": "CERT",
        "me.key": "KEY",
    }.items():
        (tmp_path / "deep" / name).write_text(text)
    config = load(path)
    assert config.ca_pem == "CA"
    auth = config.credentials.current()
    assert dict(auth.headers) == {"Authorization": "Bearer from-file"}
    assert auth.certificate is not None
    assert (auth.certificate.chain_pem, auth.certificate.key_pem) == (
        "CERT",
        "KEY",
    )


def test_inline_data_wins_over_files(tmp_path: Path) -> None:
    cluster = {
        "server": "https://k",
        "certificate-authority": "/no/such",
        "certificate-authority-data": b64("INLINE"),
    }
    assert load(write(tmp_path / "a", cluster)).ca_pem == "INLINE"


def test_password_and_impersonation_are_sent_as_headers(tmp_path: Path) -> None:
    user = {"username": "u", "password": "p", "as": "boss", "as-groups": ["g1", "g2"]}
    auth = load(write(tmp_path / "a", user=user)).credentials.current()
    assert auth.headers == (
        ("Impersonate-User", "boss"),
        ("Impersonate-Group", "g1"),
        ("Impersonate-Group", "g2"),
        ("Authorization", f"Basic {b64('u:p')}"),
    )


def test_disabled_tls_verification_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load(write(tmp_path / "a", {"server": "https://k", "insecure-skip-tls-verify": True}))
    assert config.insecure
    assert "TLS VERIFICATION IS OFF for https://k" in caplog.text


REFUSED = {
    "a proxy": ({"server": "https://k", "proxy-url": "http://p"}, {}, "proxy-url is not supported"),
    "no server": ({"server": ""}, {}, "not an https:// address"),
    "an unknown scheme": ({"server": "ftp://k"}, {}, "not an https:// address"),
    "credentials in the address": ({"server": "https://u:p@k"}, {}, "in users"),
    "a token over plain http": ({"server": "http://k"}, {"token": "t"}, "unencrypted"),
    "a host that only looks like loopback": (
        {"server": "http://127.0.0.1.example.com"},
        {"token": "t"},
        "unencrypted",
    ),
    "no verification and a CA": (
        {
            "server": "https://k",
            "insecure-skip-tls-verify": True,
            "certificate-authority-data": b64("CA"),
        },
        {},
        "exclude each other",
    ),
    "a CA that is not base64": (
        {"server": "https://k", "certificate-authority-data": "%%%"},
        {},
        "not base64",
    ),
    "a missing file": (
        {"server": "https://k", "certificate-authority": "no.crt"},
        {},
        "No such file",
    ),
    "half a certificate": (
        None,
        {"client-certificate-data": b64("C")},
        "the key of the client certificate is missing",
    ),
    "a removed auth provider": (None, {"auth-provider": {"name": "gcp"}}, "exec plugin"),
    "a token that cannot be sent": (None, {"token": "a\nb: c"}, "cannot be sent"),
    "an unknown plugin version": (
        None,
        {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
        "not supported",
    ),
    "a plugin that wants a terminal": (
        None,
        {
            "exec": {
                "command": "x",
                "apiVersion": "client.authentication.k8s.io/v1",
                "interactiveMode": "Always",
            }
        },
        "terminal",
    ),
    "groups without a user": (None, {"as-groups": ["g"]}, "need as"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_unsafe_or_unsupported_configuration_is_refused(tmp_path: Path, case: str) -> None:
    cluster, user, want_message = REFUSED[case]
    with pytest.raises(ConfigError, match=want_message):
        load(write(tmp_path / "a", cluster, user))


def test_token_may_be_sent_unencrypted_to_loopback(tmp_path: Path) -> None:
    for server in ("http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost:1"):
        assert load(write(tmp_path / "a", {"server": server}, {"token": "t"})).is_loopback


def test_unknown_context_lists_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "a")
    with pytest.raises(ConfigError, match="no context 'x'; there are: c"):
        load(path, context="x")
    broken = write(tmp_path / "b", contexts=[{"name": "c", "context": {"cluster": "z"}}])
    with pytest.raises(ConfigError, match="no known cluster"):
        load(broken)
    empty = tmp_path / "empty"
    empty.write_text("")
    with pytest.raises(ConfigError, match="no current-context"):
        load(empty)


def test_a_broken_file_is_not_quoted_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("users:\n- user: {token: top-secret\n  x: [")
    with pytest.raises(ConfigError, match="not YAML at line") as caught:
        load(path)
    assert "top-secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    path.write_text("clusters: 7")
    with pytest.raises(ConfigError, match="clusters"):
        load(path)


def test_too_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hekla.kube.credentials.MAX_TOKEN_BYTES", 100)
    with pytest.raises(ConfigError, match="larger than 100"):
        load(write(tmp_path / "a"))


def test_written_kubeconfig_is_loadable_and_private(tmp_path: Path) -> None:
    path = tmp_path / "data" / "kubeconfig"
    write_kubeconfig(path, "https://127.0.0.1:6443", "CA PEM", "tok", "hekla", "ml")
    write_kubeconfig(path, "https://127.0.0.1:7443", "CA PEM", "tok", "hekla", "ml")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    config = load(path)
    assert (config.server, config.namespace) == ("https://127.0.0.1:7443", "ml")
    assert (config.ca_pem, headers(config)) == ("CA PEM", {"Authorization": "Bearer tok"})
    assert [each.name for each in path.parent.iterdir()] == ["kubeconfig"]


def test_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text("old")

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("hekla.kube.kubeconfig.os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_kubeconfig(path, "https://k", None, "t", "c")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["kubeconfig"]


@pytest.mark.parametrize("content", ["just a string", "- a\n- b", "3"])
def test_a_file_that_is_no_map_is_named_as_no_kubeconfig(content: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(ConfigError, match=f"{path} is no kubeconfig: it holds"):
        load(path)


def test_the_place_of_a_cluster_is_its_server_and_the_kubeconfig() -> None:
    assert ClusterConfig("https://a:1", source="/home/me/c").place == "https://a:1 of /home/me/c"
    assert ClusterConfig("https://a:1").place == "https://a:1"
