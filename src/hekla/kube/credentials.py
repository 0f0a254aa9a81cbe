"""Client credentials: tokens, token files, exec plugins and certificates.

Note: credentials change. Service-account tokens are replaced on disk about hourly, and plugins
return short-lived ones. Call `current()` for each request and do not cache the result. It may read
a file or run a program: asynchronous callers check `may_block()` and use a thread.

No token appears in a message, a log line or a `repr`.
"""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hekla.kube.errors import ConfigError

# Kubelets replace a mounted token hours before it expires; client-go reads once a minute, too.
TOKEN_FILE_REREAD_S = 60.0
EXEC_TIMEOUT_S = 60.0
# A token must be valid until the end of the request.
EXPIRY_SLACK_S = 10.0
MAX_TOKEN_BYTES = 1024 * 1024
EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ClientCertificate(msgspec.Struct, frozen=True):
    """A certificate chain and its private key, in PEM."""

    chain_pem: str
    key_pem: str

    def __repr__(self) -> str:
        return "ClientCertificate(…)"


class Auth(msgspec.Struct, frozen=True):
    """The authentication of one request: headers, and the certificate of its connection."""

    headers: tuple[tuple[str, str], ...] = ()
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        return f"Auth(headers={[name for name, _ in self.headers]})"


class Credentials(Protocol):
    """A source of authentication."""

    def current(self) -> Auth:
        """Return the current authentication; ConfigError if there is none."""
        ...

    def may_block(self) -> bool:
        """Return whether `current()` would read a file or run a program."""
        ...

    def reject(self, auth: Auth) -> bool:
        """Handle a 401; return whether the next `current()` may differ."""
        ...


class FixedCredentials:
    """Constant credentials: a token, a certificate, a password, or none."""

    def __init__(self, auth: Auth | None = None) -> None:
        self._auth = auth or Auth()

    def current(self) -> Auth:
        return self._auth

    def may_block(self) -> bool:
        return False

    def reject(self, auth: Auth) -> bool:
        return False


class TokenFileCredentials:
    """A bearer token in a file that is rotated."""

    def __init__(
        self,
        path: Path,
        *,
        base: Auth | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        reread_s: float = TOKEN_FILE_REREAD_S,
    ) -> None:
        self._path = path
        self._base = base or Auth()
        self._monotonic = monotonic
        self._reread_s = reread_s
        self._auth: Auth | None = None
        self._read_at = 0.0
        self._stale = True

    def current(self) -> Auth:
        if self.may_block():
            try:
                token = read_bounded(self._path, "token file").strip()
                self._auth = with_token(self._base, token, f"token file {self._path}")
            except ConfigError:
                # During rotation the file may be missing; the old token is still valid.
                if self._auth is None:
                    raise
            self._read_at = self._monotonic()
            self._stale = False
        assert self._auth is not None
        return self._auth

    def may_block(self) -> bool:
        return self._stale or self._monotonic() - self._read_at >= self._reread_s

    def reject(self, auth: Auth) -> bool:
        if auth == self._auth:
            self._stale = True
        return True


class ExecCredentials:
    """An exec plugin that prints an ExecCredential; run again after expiry."""

    def __init__(
        self,
        command: str,
        args: tuple[str, ...] = (),
        *,
        env: Mapping[str, str] | None = None,
        api_version: str = EXEC_API_VERSIONS[0],
        cluster: Mapping[str, Any] | None = None,
        install_hint: str = "",
        base: Auth | None = None,
        now: Callable[[], float] = time.time,
        timeout_s: float = EXEC_TIMEOUT_S,
    ) -> None:
        self._command = command
        self._args = args
        self._env = dict(env or {})
        self._api_version = api_version
        self._cluster = cluster
        self._install_hint = install_hint
        self._base = base or Auth()
        self._now = now
        self._timeout_s = timeout_s
        self._auth: Auth | None = None
        self._expires: float | None = None
        self._lock = threading.Lock()

    def current(self) -> Auth:
        with self._lock:
            if self._auth is None or self._is_expired():
                self._auth, self._expires = self._run()
            return self._auth

    def may_block(self) -> bool:
        return self._auth is None or self._is_expired()

    def reject(self, auth: Auth) -> bool:
        with self._lock:
            # Many requests may fail with one token; only the first discards it.
            if auth == self._auth:
                self._auth = None
        return True

    def _is_expired(self) -> bool:
        return self._expires is not None and self._now() >= self._expires - EXPIRY_SLACK_S

    def _run(self) -> tuple[Auth, float | None]:
        output = self._output()
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            # Not the output: it may contain a token.
            raise ConfigError(f"{self._name}: its output is not an ExecCredential") from error
        if credential.apiVersion != self._api_version:
            raise ConfigError(
                f"{self._name}: it returned {credential.apiVersion[:60]!r}, the kubeconfig "
                f"requires {self._api_version!r}"
            )
        status = credential.status
        if status is None or not (status.token or status.clientCertificateData):
            raise ConfigError(f"{self._name}: its output has neither token nor certificate")
        if bool(status.clientCertificateData) != bool(status.clientKeyData):
            raise ConfigError(f"{self._name}: its client certificate lacks the key or the chain")
        auth = self._base
        if status.clientCertificateData and status.clientKeyData:
            pair = ClientCertificate(status.clientCertificateData, status.clientKeyData)
            auth = Auth(auth.headers, pair)
        if status.token:
            auth = with_token(auth, status.token, self._name)
        return auth, self._expiry(status.expirationTimestamp)

    def _expiry(self, text: str | None) -> float | None:
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise ConfigError(f"{self._name}: expirationTimestamp is not a time") from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def _output(self) -> bytes:
        spec: dict[str, Any] = {"interactive": False}
        if self._cluster is not None:
            spec["cluster"] = self._cluster
        info = {"kind": "ExecCredential", "apiVersion": self._api_version, "spec": spec}
        env = {
            **os.environ,
            **self._env,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        program = shutil.which(self._command, path=env.get("PATH"))
        if program is None:
            hint = f"; {self._install_hint.strip()[:300]}" if self._install_hint else ""
            raise ConfigError(f"{self._name}: no such program{hint}")
        try:
            # Standard error is inherited, as by kubectl: plugins prompt there.
            process = subprocess.Popen(
                [program, *self._args],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{self._name}: cannot be run: {error.strerror}") from error
        return self._collect(process)

    def _collect(self, process: subprocess.Popen[bytes]) -> bytes:
        timed_out = threading.Event()

        def give_up() -> None:
            timed_out.set()
            _kill_group(process)

        timer = threading.Timer(self._timeout_s, give_up)
        timer.start()
        try:
            assert process.stdout is not None
            output = process.stdout.read(MAX_TOKEN_BYTES + 1)
            if len(output) > MAX_TOKEN_BYTES:
                _kill_group(process)
            code = process.wait()
        finally:
            timer.cancel()
            timer.join()
            _kill_group(process)
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if timed_out.is_set():
            raise ConfigError(f"{self._name}: no response within {self._timeout_s:g} s")
        if len(output) > MAX_TOKEN_BYTES:
            raise ConfigError(f"{self._name}: it printed more than {MAX_TOKEN_BYTES} bytes")
        if code:
            raise ConfigError(f"{self._name}: exit code {code}; see its standard error")
        return output

    @property
    def _name(self) -> str:
        return f"credential plugin {self._command!r}"


class _ExecStatus(msgspec.Struct):
    token: str | None = None
    expirationTimestamp: str | None = None
    clientCertificateData: str | None = None
    clientKeyData: str | None = None


class _ExecCredential(msgspec.Struct):
    apiVersion: str = ""
    status: _ExecStatus | None = None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # Kill the process group: a forked child would keep the pipe open.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def with_token(base: Auth, token: str, source: str) -> Auth:
    """Return `base` with a bearer token; ConfigError if it is not a valid header value."""
    token = token.strip()
    if not token:
        raise ConfigError(f"{source}: the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{source}: the token has characters that cannot be sent")
    return Auth((*base.headers, ("Authorization", f"Bearer {token}")), base.certificate)


def with_password(base: Auth, username: str, password: str) -> Auth:
    """Return `base` with HTTP basic authentication."""
    encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
    return Auth((*base.headers, ("Authorization", f"Basic {encoded}")), base.certificate)


def read_bounded(path: Path, what: str) -> str:
    """Read a small text file; ConfigError if that fails."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{what} {path}: {error.strerror}") from error
    if len(data) > MAX_TOKEN_BYTES:
        raise ConfigError(f"{what} {path}: larger than {MAX_TOKEN_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {path}: not text") from error


def tls_context(
    ca_pem: str | None, *, insecure: bool, certificate: ClientCertificate | None
) -> ssl.SSLContext:
    """Return a TLS context; `ca_pem` None means the system's roots."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_pem is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(cadata=ca_pem)
        except ssl.SSLError as error:
            raise ConfigError("the certificate authority is not a PEM certificate") from error
    if certificate is not None:
        _load_pair(context, certificate)
    return context


def _load_pair(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    # Python's ssl reads client certificates only from files: a private one, deleted at once.
    handle, path = tempfile.mkstemp(prefix="hekla-", suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{certificate.chain_pem}\n{certificate.key_pem}\n")
        context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError(
            "the client certificate and key are not a matching, unencrypted PEM pair"
        ) from error
    finally:
        os.unlink(path)


def _no_password() -> str:
    # Otherwise OpenSSL prompts on the terminal, and a daemon would hang.
    return ""
