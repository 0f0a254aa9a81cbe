"""Run skopeo, which speaks to registries: bounded, cancellable, with typed errors.

A tenant's name of an image never becomes an option: all names start with a transport. Credentials
are in a file of mode 0600, not on the command line.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hekla.images.documents import MAX_DOCUMENT_BYTES
from hekla.images.errors import (
    DigestMismatch,
    DiskFull,
    ImageError,
    ImageNotFound,
    ImagePullError,
    InvalidImage,
    RegistryUnavailable,
    ToolMissing,
    Unauthorized,
)
from hekla.images.reference import EngineImage, Reference
from hekla.units.clock import Clock

__all__ = ["Credentials", "Skopeo"]

POLL_S: Final = 0.25
DOCUMENT_TIMEOUT_S: Final = 120.0
MAX_STDERR_BYTES: Final = 64 << 10
MAX_SHOWN_CHARS: Final = 400
_POLICIES: Final = (
    "~/.config/containers/policy.json",
    "/etc/containers/policy.json",
    "/usr/share/containers/policy.json",
)
_ACCEPT_ALL: Final = {"default": [{"type": "insecureAcceptAnything"}]}


@dataclass(frozen=True, slots=True)
class Credentials:
    """A login to a registry."""

    username: str
    password: str = field(repr=False)


# What skopeo and registries write, in lower case; the first match counts.
_KINDS: Final[tuple[tuple[type[ImageError], tuple[str, ...], str], ...]] = (
    (
        ImageNotFound,
        ("does not resolve to an image id", "no such image", "reference does not exist"),
        "check the name with `podman images` or `docker images`, as the same user",
    ),
    (
        RegistryUnavailable,
        ("cannot connect to the docker daemon",),
        "start Docker, set DOCKER_HOST, or run this as a user who may use it",
    ),
    (DiskFull, ("no space left on device", "disk quota exceeded"), "free disk space"),
    (
        DigestMismatch,
        ("digest did not match", "does not match digest", "corrupted blob"),
        "the registry is damaged, or somebody changed the image on the way",
    ),
    (
        RegistryUnavailable,
        ("x509:", "server gave http response to https client", "tls: "),
        "if the registry is yours and has no certificate, list it as an insecure registry",
    ),
    (
        RegistryUnavailable,
        ("toomanyrequests", "too many requests"),
        "log in, or wait: the registry limits pulls",
    ),
    (
        ImageNotFound,
        ("manifest unknown", "name unknown", "repository name not known", "not found: manifest"),
        "check the name and the tag",
    ),
    (
        Unauthorized,
        ("unauthorized", "authentication required", "access to the resource is denied",
         "denied:", "403 (forbidden)", "invalid username/password"),
        "check the name, and that the pull secret has a login that may read it",
    ),
    (
        RegistryUnavailable,
        ("dial tcp", "no such host", "connection refused", "connection reset", "i/o timeout",
         "unexpected eof", "deadline exceeded", "pinging container registry", "bad gateway",
         "service unavailable", "gateway timeout", "internal server error", "broken pipe"),
        "check that the registry runs and can be reached; the pull is tried again",
    ),
    (ImageNotFound, ("404 (not found)", "not found"), "check the name and the tag"),
)  # fmt: skip


class Skopeo:
    """The program, with a directory for its files that the caller removes."""

    def __init__(
        self,
        scratch: Path,
        clock: Clock,
        *,
        program: str = "skopeo",
        registry: str = "",
        credentials: Credentials | Path | None = None,
        insecure: bool = False,
    ) -> None:
        """`credentials` are a login to the registry, or an auth file; None is anonymous.

        `insecure` allows plain HTTP and unknown certificates.
        """
        found = shutil.which(program)
        if found is None:
            raise ToolMissing(
                "skopeo is not installed, which pulls images; install the package skopeo, for "
                "example with: apt-get install skopeo (archives are loaded without it)"
            )
        self._program = found
        self._scratch = scratch
        self._clock = clock
        self._registry = registry
        self._insecure = insecure
        self._credentials = credentials

    async def manifest(self, reference: Reference) -> bytes:
        """Return the index or manifest of a name."""
        return await self._document(reference, "--raw")

    async def config(self, reference: Reference) -> bytes:
        """Return the configuration of an image, by the digest of its manifest."""
        return await self._document(reference, "--config", "--raw")

    async def copy(
        self, reference: Reference, blobs: Path, watch: Callable[[], None], timeout_s: float
    ) -> None:
        """Fetch the blobs of an image into `blobs`, but not those that are there.

        `watch` is called now and then; the copy ends with the error that it raises.
        """
        words = ["copy", *self._transport_options("src-"), "--dest-oci-accept-uncompressed-layers"]
        words += ["--dest-shared-blob-dir", str(blobs)]
        words += [_address(reference), f"oci:{self._scratch / 'layout'}:image"]
        await self._run(words, reference, watch, timeout_s)

    async def export(
        self, image: EngineImage, archive: Path, watch: Callable[[], None], timeout_s: float
    ) -> None:
        """Write an image of podman or Docker into a file, as `docker save` does."""
        words = ["copy", str(image), f"docker-archive:{archive}"]
        await self._run(words, image, watch, timeout_s)

    async def _document(self, reference: Reference, *options: str) -> bytes:
        words = ["inspect", *options, *self._transport_options(""), _address(reference)]
        data = await self._run(words, reference, lambda: None, DOCUMENT_TIMEOUT_S)
        if len(data) > MAX_DOCUMENT_BYTES:
            raise InvalidImage(
                f"the manifest of {reference} is larger than {MAX_DOCUMENT_BYTES >> 20} MiB"
            )
        return data

    def _transport_options(self, prefix: str) -> list[str]:
        verify = [f"--{prefix}tls-verify=false"] if self._insecure else []
        return [*verify, f"--{prefix}authfile" if prefix else "--authfile", str(self._auth_file())]

    def _auth_file(self) -> Path:
        """Return a file with the credentials; without any, no login of this user is used."""
        if isinstance(self._credentials, Path):
            return self._credentials
        path = self._scratch / "auth.json"
        if not path.exists():
            _write_private(path, {"auths": self._auths()})
        return path

    def _auths(self) -> dict[str, dict[str, str]]:
        login = self._credentials
        if not isinstance(login, Credentials):
            return {}
        packed = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        return {self._registry: {"auth": packed}}

    async def _run(
        self,
        words: Sequence[str],
        reference: Reference | EngineImage,
        watch: Callable[[], None],
        timeout_s: float,
    ) -> bytes:
        process = await asyncio.create_subprocess_exec(
            self._program,
            *self._global_options(),
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        output = asyncio.ensure_future(_read(process.stdout, MAX_DOCUMENT_BYTES + 1))
        errors = asyncio.ensure_future(_read_tail(process.stderr))
        ended = asyncio.ensure_future(process.wait())
        try:
            await self._wait(ended, reference, watch, timeout_s)
            if ended.result():
                raise _error(await errors, reference)
            return await output
        finally:
            if not ended.done():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(asyncio.gather(ended, output, errors, return_exceptions=True))

    async def _wait(
        self,
        ended: asyncio.Future[int],
        reference: Reference | EngineImage,
        watch: Callable[[], None],
        timeout_s: float,
    ) -> None:
        deadline = self._clock.monotonic() + timeout_s
        while not ended.done():
            pause = asyncio.ensure_future(self._clock.sleep(POLL_S))
            both: set[asyncio.Future[Any]] = {ended, pause}
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                pause.cancel()
            watch()
            if not ended.done() and self._clock.monotonic() > deadline:
                raise RegistryUnavailable(
                    f"image {reference} was not there after {timeout_s:.0f} s; check the registry "
                    "and the network; the pull is tried again"
                )

    def _global_options(self) -> list[str]:
        options = ["--tmpdir", str(self._scratch)]
        if not any(Path(path).expanduser().exists() for path in _POLICIES):
            # Without a policy skopeo refuses to copy; Docker has none, either.
            path = self._scratch / "policy.json"
            if not path.exists():
                _write_private(path, _ACCEPT_ALL)
            options += ["--policy", str(path)]
        return options


def _address(reference: Reference) -> str:
    """Return a name for skopeo, which refuses both a tag and a digest."""
    by_digest = reference.by_digest(reference.digest) if reference.digest else reference
    return f"docker://{by_digest}"


def _write_private(path: Path, value: object) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(value, file)


async def _read(stream: asyncio.StreamReader, most: int) -> bytes:
    """Return the first bytes of an output, and drop the rest so that the program can end."""
    parts: list[bytes] = []
    while data := await stream.read(1 << 16):
        if most > 0:
            parts.append(data[:most])
            most -= len(data)
    return b"".join(parts)


async def _read_tail(stream: asyncio.StreamReader) -> str:
    tail = b""
    while data := await stream.read(1 << 16):
        tail = (tail + data)[-MAX_STDERR_BYTES:]
    return tail.decode(errors="replace")


def _error(output: str, reference: Reference | EngineImage) -> ImageError:
    """Return the error that skopeo's messages mean."""
    text = _shown(output)
    # A name or digest may look like a reason.
    lowered = re.sub("sha(256|512):[0-9a-f]+", "", text.lower().replace(reference.name.lower(), ""))
    for kind, needles, advice in _KINDS:
        if any(needle in lowered for needle in needles):
            return kind(f"image {reference} cannot be pulled: {text}; {advice}")
    return ImagePullError(f"image {reference} cannot be pulled: {text or 'skopeo gave no reason'}")


def _shown(output: str) -> str:
    """Return the last message: printable, bounded, without the queries of signed addresses."""
    lines = [line for line in output.splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    if found := re.search(r'msg="((?:[^"\\]|\\.)*)"', text):
        text = found[1].replace('\\"', '"')
    text = re.sub(r"\?[^\s\"]*", "", text)
    text = re.sub(r"^(?:FATA\S*|Error parsing image name \"[^\"]*\":)\s*", "", text)
    return "".join(letter for letter in text if letter.isprintable())[-MAX_SHOWN_CHARS:]
