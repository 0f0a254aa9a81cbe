"""Kubeconfig files, and the service account of a pod.

Searched in kubectl's order: an explicit path; $KUBECONFIG; ~/.kube/config; the pod's service
account. Commands and the SDK use `hekla.kube.cluster_choice`, which knows the cluster of this
machine too.

Note: $KUBECONFIG is a list. Its files are merged, the first definition of a name wins, and a
relative path is relative to the file that contains it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from hekla.kube.credentials import (
    EXEC_API_VERSIONS,
    Auth,
    ClientCertificate,
    Credentials,
    ExecCredentials,
    FixedCredentials,
    TokenFileCredentials,
    read_bounded,
    with_password,
    with_token,
)
from hekla.kube.errors import ConfigError
from hekla.units import bounded_yaml

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
N = TypeVar("N")


class ClusterConfig(msgspec.Struct, frozen=True):
    """A resolved context: server, namespace and credentials."""

    server: str
    namespace: str = "default"
    ca_pem: str | None = None
    insecure: bool = False
    tls_server_name: str | None = None
    credentials: Credentials = msgspec.field(default_factory=FixedCredentials)
    context: str = ""
    source: str = ""
    paths: tuple[Path, ...] = ()
    """The kubeconfig files."""

    def __repr__(self) -> str:
        return f"ClusterConfig(server={self.server!r}, context={self.context!r})"

    @property
    def place(self) -> str:
        """The server and where its address comes from, for errors."""
        return f"{self.server} of {self.source}" if self.source else self.server

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine."""
        return _is_loopback(urlsplit(self.server).hostname or "")


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    extensions: Any = None


class _ExecVariable(msgspec.Struct):
    name: str
    value: str = ""


class _Exec(msgspec.Struct):
    command: str
    apiVersion: str = ""
    args: list[str] | None = None
    env: list[_ExecVariable] | None = None
    installHint: str = ""
    provideClusterInfo: bool = False
    interactiveMode: str = "IfAvailable"


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    password: str = ""
    exec: _Exec | None = None
    auth_provider: Any = None
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_uid: str = msgspec.field(default="", name="as-uid")
    impersonate_groups: list[str] | None = msgspec.field(default=None, name="as-groups")


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _File(msgspec.Struct, rename="kebab"):
    current_context: str = ""
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class Kubeconfig:
    """Merged kubeconfig files."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.current_context = ""
        # Each entry keeps the directory of its file, for relative paths.
        self._clusters: dict[str, tuple[_Cluster, Path]] = {}
        self._users: dict[str, tuple[_User, Path]] = {}
        self._contexts: dict[str, _Context] = {}
        for path in paths:
            self._merge(path)

    @property
    def contexts(self) -> list[str]:
        """Names of the contexts in the order of definition."""
        return list(self._contexts)

    def resolve(self, context: str | None = None) -> ClusterConfig:
        """Resolve a context (the current one by default)."""
        name = context or self.current_context
        where = ", ".join(map(str, self.paths))
        if not name:
            raise ConfigError(f"{where}: no current-context is set; name one with --context")
        found = self._contexts.get(name)
        if found is None:
            known = ", ".join(self._contexts) or "none"
            raise ConfigError(f"{where}: no context {name!r}; there are: {known}")
        if found.cluster not in self._clusters:
            raise ConfigError(f"{where}: context {name!r} names no known cluster")
        if found.user and found.user not in self._users:
            raise ConfigError(f"{where}: context {name!r} names no known user")
        cluster, cluster_dir = self._clusters[found.cluster]
        user, user_dir = self._users.get(found.user, (_User(), cluster_dir))
        ca_pem = _pem(
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            cluster_dir,
            f"certificate authority of cluster {found.cluster!r}",
        )
        _check_cluster(found.cluster, cluster, ca_pem)
        credentials = _credentials(found.user, user, user_dir, cluster, ca_pem)
        config = ClusterConfig(
            server=cluster.server.rstrip("/"),
            namespace=found.namespace or "default",
            ca_pem=ca_pem,
            insecure=cluster.insecure_skip_tls_verify,
            tls_server_name=cluster.tls_server_name or None,
            credentials=credentials,
            context=name,
            source=where,
            paths=tuple(self.paths),
        )
        return _checked(config, has_credentials=user != _User())

    def _merge(self, path: Path) -> None:
        file = _read(path)
        folder = path.absolute().parent
        self.current_context = self.current_context or file.current_context
        for cluster in file.clusters or ():
            self._clusters.setdefault(cluster.name, (cluster.cluster, folder))
        for user in file.users or ():
            self._users.setdefault(user.name, (user.user or _User(), folder))
        for context in file.contexts or ():
            self._contexts.setdefault(context.name, context.context)


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> ClusterConfig:
    """Load the configuration from the first source that exists."""
    environ = os.environ if environ is None else environ
    if path is not None:
        return Kubeconfig([Path(path).expanduser()]).resolve(context)
    if listed := environ.get("KUBECONFIG", ""):
        paths = [Path(part).expanduser() for part in listed.split(os.pathsep) if part]
        if present := [each for each in paths if _exists(each)]:
            return Kubeconfig(present).resolve(context)
        raise ConfigError(
            f"$KUBECONFIG is {listed!r}, and no such file exists; correct it, or unset it"
        )
    default = (home or Path.home()) / ".kube" / "config"
    if _exists(default):
        return Kubeconfig([default]).resolve(context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=environ, service_account_dir=service_account_dir)
    raise ConfigError(
        f"no cluster is configured: $KUBECONFIG is not set, {default} does not exist and this is "
        "not a pod; start one here with `hekla up`, or give --kubeconfig"
    )


def _exists(path: Path) -> bool:
    """Return whether a file exists; one in a directory of another user is refused when read."""
    try:
        return path.exists()
    except PermissionError:
        return True


def in_cluster(
    *,
    environ: Mapping[str, str] | None = None,
    service_account_dir: Path = SERVICE_ACCOUNT_DIR,
) -> ClusterConfig:
    """Return the configuration of the current pod; its token file is read again after rotation."""
    environ = os.environ if environ is None else environ
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "") or "443"
    if not host:
        raise ConfigError("not in a cluster: $KUBERNETES_SERVICE_HOST is not set")
    if ":" in host:
        host = f"[{host}]"
    namespace = "default"
    with contextlib.suppress(ConfigError):  # optional, unlike the other two files
        namespace = read_bounded(service_account_dir / "namespace", "namespace file").strip()
    credentials = TokenFileCredentials(service_account_dir / "token")
    credentials.current()  # report a missing token now, not at the first request
    return ClusterConfig(
        server=f"https://{host}:{port}",
        namespace=namespace,
        ca_pem=read_bounded(service_account_dir / "ca.crt", "certificate authority"),
        credentials=credentials,
        context="in-cluster",
        source=str(service_account_dir),
    )


def write_kubeconfig(
    path: str | os.PathLike[str],
    server: str,
    ca_pem: str | None,
    token: str,
    context_name: str,
    namespace: str = "default",
) -> None:
    """Write a kubeconfig with one context, atomically, with mode 0600."""
    target = Path(path)
    text = render_kubeconfig(server, ca_pem, token, context_name, namespace)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # mkstemp creates the file with mode 0600: others can never read it.
    import tempfile  # only needed here; commands import this module

    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def render_kubeconfig(
    server: str, ca_pem: str | None, token: str, context_name: str, namespace: str = "default"
) -> str:
    """Return the text of a kubeconfig with one context."""
    cluster: dict[str, Any] = {"server": server}
    if ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context_name, "cluster": cluster}],
        "users": [{"name": context_name, "user": {"token": token}}],
        "contexts": [
            {
                "name": context_name,
                "context": {
                    "cluster": context_name,
                    "user": context_name,
                    "namespace": namespace,
                },
            }
        ],
        "current-context": context_name,
        "preferences": {},
    }
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False))


def _read(path: Path) -> _File:
    text = read_bounded(path, "kubeconfig")
    try:
        data = bounded_yaml.load(text, bounded_yaml.CONFIG)
    except bounded_yaml.YAMLError as error:
        # Only the line number: YAML errors quote text, which may contain a token.
        mark = getattr(error, "problem_mark", None)
        at = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"kubeconfig {path}: not YAML{at}") from None
    if data is not None and not isinstance(data, dict):
        found = "a list" if isinstance(data, list) else "one value"
        raise ConfigError(
            f"{path} is no kubeconfig: it holds {found} instead of clusters, users and contexts"
        )
    try:
        return msgspec.convert(data if data is not None else {}, type=_File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"kubeconfig {path}: {error}") from error


def _check_cluster(name: str, cluster: _Cluster, ca_pem: str | None) -> None:
    if cluster.proxy_url:
        raise ConfigError(
            f"cluster {name!r}: proxy-url is not supported; remove it and reach the server directly"
        )
    if cluster.insecure_skip_tls_verify and ca_pem:
        raise ConfigError(
            f"cluster {name!r}: insecure-skip-tls-verify and a certificate authority exclude each "
            "other; remove the former"
        )


def _checked(config: ClusterConfig, *, has_credentials: bool) -> ClusterConfig:
    parts = urlsplit(config.server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"context {config.context!r}: server {config.server!r} is not an https:// address"
        )
    if parts.username or parts.password:
        # Without the address: it contains the password.
        raise ConfigError(f"context {config.context!r}: credentials belong in users, not in server")
    if parts.scheme == "http" and has_credentials and not config.is_loopback:
        raise ConfigError(
            f"context {config.context!r}: credentials would be sent unencrypted to "
            f"{config.server!r}; use https"
        )
    if config.insecure:
        logger.warning(
            "TLS VERIFICATION IS OFF for %s (insecure-skip-tls-verify in context %r): anyone on "
            "the network path can read and change all data, including tokens",
            config.server,
            config.context,
        )
    return config


def _credentials(
    name: str, user: _User, folder: Path, cluster: _Cluster, ca_pem: str | None
) -> Credentials:
    what = f"user {name!r}"
    base = Auth(_impersonation(what, user), _certificate(what, user, folder))
    if user.auth_provider is not None:
        raise ConfigError(f"{what}: auth-provider was removed from Kubernetes; use an exec plugin")
    if user.exec is not None:
        return _exec_credentials(what, user.exec, folder, base, cluster, ca_pem)
    if user.token:  # a literal token has precedence over a file, as in client-go
        return FixedCredentials(with_token(base, user.token, what))
    if user.token_file:
        return TokenFileCredentials(folder / Path(user.token_file).expanduser(), base=base)
    if user.username:
        return FixedCredentials(with_password(base, user.username, user.password))
    return FixedCredentials(base)


def _exec_credentials(
    what: str,
    plugin: _Exec,
    folder: Path,
    base: Auth,
    cluster: _Cluster,
    ca_pem: str | None,
) -> ExecCredentials:
    if plugin.apiVersion not in EXEC_API_VERSIONS:
        raise ConfigError(
            f"{what}: exec apiVersion {plugin.apiVersion!r} is not supported; use one of "
            f"{', '.join(EXEC_API_VERSIONS)}"
        )
    if plugin.interactiveMode == "Always":
        raise ConfigError(f"{what}: its plugin requires a terminal (interactiveMode: Always)")
    command = plugin.command
    if not command:
        raise ConfigError(f"{what}: exec has no command")
    if os.sep in command:
        command = str(folder / command)
    info: dict[str, Any] | None = None
    if plugin.provideClusterInfo:
        info = {"server": cluster.server}
        if ca_pem:
            info["certificate-authority-data"] = base64.b64encode(ca_pem.encode()).decode()
        if cluster.tls_server_name:
            info["tls-server-name"] = cluster.tls_server_name
        if cluster.insecure_skip_tls_verify:
            info["insecure-skip-tls-verify"] = True
    return ExecCredentials(
        command,
        tuple(plugin.args or ()),
        env={variable.name: variable.value for variable in plugin.env or ()},
        api_version=plugin.apiVersion,
        cluster=info,
        install_hint=plugin.installHint,
        base=base,
    )


def _impersonation(what: str, user: _User) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if user.impersonate:
        headers.append(("Impersonate-User", user.impersonate))
    if user.impersonate_uid:
        headers.append(("Impersonate-Uid", user.impersonate_uid))
    headers += [("Impersonate-Group", group) for group in user.impersonate_groups or ()]
    if headers and not user.impersonate:
        raise ConfigError(f"{what}: as-uid and as-groups need as")
    if any(not value.isprintable() or not value.isascii() for _, value in headers):
        raise ConfigError(f"{what}: a name to impersonate has characters that cannot be sent")
    return tuple(headers)


def _certificate(what: str, user: _User, folder: Path) -> ClientCertificate | None:
    chain = _pem(
        user.client_certificate_data,
        user.client_certificate,
        folder,
        f"client certificate of {what}",
    )
    key = _pem(user.client_key_data, user.client_key, folder, f"client key of {what}")
    if chain is None and key is None:
        return None
    if chain is None or key is None:
        missing = "key" if key is None else "certificate"
        raise ConfigError(f"{what}: the {missing} of the client certificate is missing")
    return ClientCertificate(chain, key)


def _pem(data: str, file: str, folder: Path, what: str) -> str | None:
    if data:  # inline data has precedence over a file, as in client-go
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise ConfigError(f"{what}: not base64 of a PEM text") from None
    return read_bounded(folder / Path(file).expanduser(), what) if file else None


def _is_loopback(host: str) -> bool:
    # Parsed, not compared by prefix: 127.0.0.1.example.com is not loopback.
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
