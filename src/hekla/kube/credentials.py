"""How we prove to a server who we are: tokens, rotating token files, exec plugins, certificates.

What a newcomer gets wrong: a credential is not a constant. Service account tokens are replaced on
disk about hourly and plugins hand out short-lived ones, so ask `current()` for every request and
never keep its answer. Asking may read a file or run a program: asynchronous callers look at
`may_block()` first and move the work off the event loop.

Nothing here puts a token into a message, a log line or a `repr`.
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

# Kubelets replace a mounted token with hours to spare; client-go looks once a minute too.
TOKEN_FILE_REREAD_S = 60.0
EXEC_TIMEOUT_S = 60.0
# A token must outlive the request that carries it.
EXPIRY_SLACK_S = 10.0
MAX_TOKEN_BYTES = 1024 * 1024
EXEC_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class ClientCertificate(msgspec.Struct, frozen=True):
    """A certificate chain and its private key, in PEM."""

    chain_pem: str
    key_pem: str

    def __repr__(self) -> str:
        return "ClientCertificate(…)"


class Proof(msgspec.Struct, frozen=True):
    """What one request carries: headers, and the certificate its connection is made with."""

    headers: tuple[tuple[str, str], ...] = ()
    certificate: ClientCertificate | None = None

    def __repr__(self) -> str:
        return f"Proof(headers={[name for name, _ in self.headers]})"


class Credentials(Protocol):
    """Where proofs come from."""

    def current(self) -> Proof:
        """The proof to send now. Raises ConfigError if none can be had."""
        ...

    def may_block(self) -> bool:
        """Whether `current()` would read a file or run a program now."""
        ...

    def reject(self, proof: Proof) -> bool:
        """The server did not accept `proof` (401): True if the next `current()` may differ."""
        ...


class FixedCredentials:
    """The same proof for ever: a token, a certificate, a password, or nothing at all."""

    def __init__(self, proof: Proof | None = None) -> None:
        self._proof = proof or Proof()

    def current(self) -> Proof:
        return self._proof

    def may_block(self) -> bool:
        return False

    def reject(self, proof: Proof) -> bool:
        return False


class TokenFileCredentials:
    """A bearer token in a file that somebody replaces from time to time."""

    def __init__(
        self,
        path: Path,
        *,
        base: Proof | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        reread_s: float = TOKEN_FILE_REREAD_S,
    ) -> None:
        self._path = path
        self._base = base or Proof()
        self._monotonic = monotonic
        self._reread_s = reread_s
        self._proof: Proof | None = None
        self._read_at = 0.0
        self._stale = True

    def current(self) -> Proof:
        if self.may_block():
            try:
                token = read_bounded(self._path, "token file").strip()
                self._proof = with_token(self._base, token, f"token file {self._path}")
            except ConfigError:
                # Mid-rotation a file can be missing for a moment; the old token is still good then.
                if self._proof is None:
                    raise
            self._read_at = self._monotonic()
            self._stale = False
        assert self._proof is not None
        return self._proof

    def may_block(self) -> bool:
        return self._stale or self._monotonic() - self._read_at >= self._reread_s

    def reject(self, proof: Proof) -> bool:
        if proof == self._proof:
            self._stale = True
        return True


class ExecCredentials:
    """A program that prints an ExecCredential, run again when what it gave has expired."""

    def __init__(
        self,
        command: str,
        args: tuple[str, ...] = (),
        *,
        env: Mapping[str, str] | None = None,
        api_version: str = EXEC_API_VERSIONS[0],
        cluster: Mapping[str, Any] | None = None,
        install_hint: str = "",
        base: Proof | None = None,
        now: Callable[[], float] = time.time,
        timeout_s: float = EXEC_TIMEOUT_S,
    ) -> None:
        self._command = command
        self._args = args
        self._env = dict(env or {})
        self._api_version = api_version
        self._cluster = cluster
        self._install_hint = install_hint
        self._base = base or Proof()
        self._now = now
        self._timeout_s = timeout_s
        self._proof: Proof | None = None
        self._expires: float | None = None
        self._lock = threading.Lock()

    def current(self) -> Proof:
        with self._lock:
            if self._proof is None or self._is_expired():
                self._proof, self._expires = self._run()
            return self._proof

    def may_block(self) -> bool:
        return self._proof is None or self._is_expired()

    def reject(self, proof: Proof) -> bool:
        with self._lock:
            # Many requests may fail with one bad token; only the first of them discards it.
            if proof == self._proof:
                self._proof = None
        return True

    def _is_expired(self) -> bool:
        return self._expires is not None and self._now() >= self._expires - EXPIRY_SLACK_S

    def _run(self) -> tuple[Proof, float | None]:
        output = self._output()
        try:
            found = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            # Only where it failed, never what it printed: that may hold a token.
            raise ConfigError(f"{self._name}: its output is no ExecCredential") from error
        if found.apiVersion != self._api_version:
            raise ConfigError(
                f"{self._name}: it speaks {found.apiVersion[:60]!r} where the kubeconfig asks for "
                f"{self._api_version!r}"
            )
        status = found.status
        if status is None or not (status.token or status.clientCertificateData):
            raise ConfigError(f"{self._name}: its output holds neither token nor certificate")
        if bool(status.clientCertificateData) != bool(status.clientKeyData):
            raise ConfigError(f"{self._name}: it gave half a client certificate (key or chain)")
        proof = self._base
        if status.clientCertificateData and status.clientKeyData:
            pair = ClientCertificate(status.clientCertificateData, status.clientKeyData)
            proof = Proof(proof.headers, pair)
        if status.token:
            proof = with_token(proof, status.token, self._name)
        return proof, self._expiry(status.expirationTimestamp)

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
            # Its standard error stays ours, as kubectl does: that is where it talks to people.
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
            raise ConfigError(f"{self._name}: it failed with exit code {code}; see its messages")
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
    # The group, not the process: a plugin that forked would keep our pipe open.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def with_token(base: Proof, token: str, source: str) -> Proof:
    """`base` with a bearer token; ConfigError if it could not travel in a header."""
    token = token.strip()
    if not token:
        raise ConfigError(f"{source}: the token is empty")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{source}: the token has characters that cannot be sent")
    return Proof((*base.headers, ("Authorization", f"Bearer {token}")), base.certificate)


def with_password(base: Proof, username: str, password: str) -> Proof:
    """`base` with HTTP basic authentication, which some proxies in front of a server ask for."""
    encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
    return Proof((*base.headers, ("Authorization", f"Basic {encoded}")), base.certificate)


def read_bounded(path: Path, what: str) -> str:
    """A small text file; ConfigError if it cannot be read or is not small."""
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
    """How to talk TLS: whom to trust (the system's roots if `ca_pem` is None), and as whom."""
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
    # Python's ssl takes client certificates only from files: one readable by us, gone at once.
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
    # Without this OpenSSL asks on the terminal, and a daemon would hang.
    return ""
