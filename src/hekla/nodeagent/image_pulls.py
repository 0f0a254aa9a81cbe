"""The images that pods of this node run: found in the store, or pulled.

`NodeImages` belongs to the node, and pulls one image once for all pods that wait for it with the
same login. `PodImages` belongs to one pod: it decides by the pull policy, counts failures for the
back-off, and pins what the pod uses.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from hekla.images.errors import ImageError, ImageNotFound, InvalidReference
from hekla.images.reference import FILE_PREFIX, OrasImage, Reference, SifFile, parse_image
from hekla.images.sif_files import find_sif, load_sif
from hekla.images.store import Image, ImageStore
from hekla.images.transfer import Credentials, Puller
from hekla.nodeagent.background_tasks import BackgroundTasks
from hekla.nodeagent.pull_secrets import find_login, secret_names
from hekla.units.clock import Clock
from hekla.units.objects import Object

log = logging.getLogger("hekla.nodeagent")

MAX_PULLS: Final = 4
PROGRESS_S: Final = 1.0
"""The least time between two reports of the progress."""
MAX_REPORTS: Final = 10
"""Of all pods that wait for one pull, in this time."""
BACKOFF_BASE_S: Final = 10.0
BACKOFF_CAP_S: Final = 300.0
"""As the kubelet's, for each image of a pod."""
SHOW_ERROR_S: Final = 2.0
"""How long the status is ErrImagePull, before it is ImagePullBackOff."""
INVALID_NAME_S: Final = 300.0
ADVICE: Final = "or install skopeo to run images of registries, or `hekla image load` it"

Event = Callable[[Object, Literal["Normal", "Warning"], str, str], None]
FetchSecrets = Callable[[Object, list[str]], Awaitable[list[Object]]]
"""Returns those of a pod's pull secrets that exist."""
Changed = Callable[[str | None], None]
"""Gets a new message of the waiting container; None when it may start, or has to be tried again."""


class ImageWaits(Exception):
    """The image is not here yet. `retry_s` is None if `Changed` is called."""

    def __init__(self, reason: str, message: str, retry_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_s = retry_s


class ImageUnavailable(Exception):
    """Nothing on this machine can bring the image."""


_Source = Reference | SifFile | OrasImage
_Key = tuple[str, Credentials | Path | None]


@dataclass(slots=True)
class _Pull:
    """A pull that several pods may wait for."""

    task: asyncio.Task[Image]
    done_bytes: int = 0
    total_bytes: int = 0
    is_waiting: bool = True
    """Other pulls go first."""
    waiters: int = 0


class NodeImages:
    """The store of this node, and what is being pulled into it."""

    def __init__(
        self,
        store: ImageStore,
        puller: Puller,
        clock: Clock,
        *,
        fetch_secrets: FetchSecrets,
        own_login: Callable[[], Path | None],
        open_file: Callable[[str], int],
        probe: Callable[[], str],
        program: str = "skopeo",
    ) -> None:
        """`own_login` returns the file with logins for pods without pull secrets, if any.

        `open_file` opens a file of this machine if pods may read it.

        `probe` returns why images cannot run here; it blocks.
        """
        self.store = store
        self.clock = clock
        self.fetch_secrets = fetch_secrets
        self.own_login = own_login
        self.open_file = open_file
        self._puller = puller
        self._probe = probe
        self._problem: str | None = None
        self._program = program
        self._pulls: dict[_Key, _Pull] = {}
        self._tasks: set[asyncio.Task[Image]] = set()
        self._free = asyncio.Semaphore(MAX_PULLS)

    @property
    def can_pull(self) -> bool:
        return shutil.which(self._program) is not None

    async def problem(self) -> str:
        """Return why images cannot run here; empty if they can. It is tried out once."""
        if self._problem is None:
            self._problem = await asyncio.to_thread(self._probe)
        return self._problem

    def pull(
        self, reference: Reference | OrasImage, credentials: Credentials | Path | None
    ) -> _Pull:
        """Return a pull that runs, or start one."""
        key = str(reference), credentials
        return self._pulls.get(key) or self._start(key, self._run(reference, credentials, key))

    def unpack(self, source: SifFile) -> _Pull:
        """Return an unpacking of a SIF file that runs, or start one."""
        key = str(source), None
        return self._pulls.get(key) or self._start(key, self._unpack(source, key))

    def _start(self, key: _Key, work: Coroutine[Any, Any, Image]) -> _Pull:
        started = _Pull(asyncio.create_task(work))
        self._pulls[key] = started
        self._tasks.add(started.task)
        started.task.add_done_callback(self._end)
        return started

    def _end(self, task: asyncio.Task[Image]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also if all pods that waited are gone

    async def _unpack(self, source: SifFile, key: _Key) -> Image:
        try:
            async with self._free:
                self._pulls[key].is_waiting = False
                descriptor = await asyncio.to_thread(self.open_file, source.path)
                try:
                    return await load_sif(self.store, descriptor, source)
                finally:
                    os.close(descriptor)
        finally:
            del self._pulls[key]

    async def _run(
        self, reference: Reference | OrasImage, credentials: Credentials | Path | None, key: _Key
    ) -> Image:
        def progress(done: int, total: int) -> None:
            self._pulls[key].done_bytes, self._pulls[key].total_bytes = done, total

        try:
            async with self._free:
                self._pulls[key].is_waiting = False
                if isinstance(reference, OrasImage):
                    return await self._puller.pull_sif(
                        reference, credentials=credentials, progress=progress
                    )
                return await self._puller.pull(
                    reference, credentials=credentials, progress=progress
                )
        finally:
            del self._pulls[key]

    def unpin(self, uid: str) -> None:
        """Let go of the images of a pod; may be called from any thread."""
        try:
            self.store.unpin(uid)
        except ImageError as error:
            log.warning("images of pod %s stay pinned until the next start: %s", uid, error)

    def unpin_all_except(self, uids: set[str]) -> None:
        for holder in self.store.pins().keys() - uids:
            self.unpin(holder)

    async def end_pulls(self) -> None:
        """End all pulls; what they brought in is removed."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class _Attempt:
    """How far an image is for one container."""

    task: asyncio.Task[None] | None = None
    image: Image | None = None
    message: str = ""
    failures: int = 0
    error: str = ""
    retry_at: float = 0.0
    shown_at: float | None = None


@dataclass
class PodImages:
    """The images of one pod."""

    pod: Object
    node: NodeImages
    event: Event
    has_pinned: bool = False
    _attempts: dict[str, _Attempt] = field(default_factory=dict)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks)

    async def require(self, container: Object, changed: Changed) -> Image:
        """Return the image of a container that starts; raise ImageWaits until it is here."""
        name, text = str(container["name"]), str(container["image"])
        attempt = self._attempts.setdefault(name, _Attempt())
        if attempt.task is not None:
            raise ImageWaits("ContainerCreating", attempt.message)
        if attempt.image is not None:
            image, attempt.image = attempt.image, None
            return image
        try:
            source = parse_image(text)
        except InvalidReference as error:
            message = f"Failed to apply default image tag: {error}"
            if attempt.error != message:
                attempt.error = message
                self.event(self.pod, "Warning", "InspectFailed", message)
            raise ImageWaits("InvalidImageName", str(error), INVALID_NAME_S) from error
        self._check_backoff(attempt, text)
        policy = container.get("imagePullPolicy") or "IfNotPresent"
        if isinstance(source, SifFile):
            policy = "IfNotPresent"  # a file is here, and is looked at each time
        known = None if policy == "Always" else await self._find(source)
        if known is not None:
            attempt.failures, attempt.error = 0, ""
            message = f'Container image "{text}" already present on machine'
            self.event(self.pod, "Normal", "Pulled", message)
            return known
        if policy == "Never":
            message = f'Container image "{text}" is not present with pull policy of Never'
            if attempt.error != message:
                attempt.error = message
                self.event(self.pod, "Warning", "ErrImageNeverPull", message)
            raise ImageWaits("ErrImageNeverPull", message, BACKOFF_BASE_S)
        is_file = isinstance(source, SifFile)
        if not is_file and not self.node.can_pull and not await self._find(source):
            raise ImageUnavailable(text)
        attempt.message = f'{"unpacking" if is_file else "pulling"} image "{text}"'
        attempt.task = self._tasks.start(self._pull(attempt, text, source, changed))
        raise ImageWaits("ContainerCreating", attempt.message)

    def close(self) -> None:
        """Wait for no image any more; pulls go on for other pods."""
        self._tasks.cancel()

    def _check_backoff(self, attempt: _Attempt, text: str) -> None:
        """Raise ImageWaits until the next attempt: at first with the error itself."""
        now = self.node.clock.monotonic()
        left_s = attempt.retry_at - now
        if left_s <= 0 or not attempt.error:
            return
        if attempt.shown_at is None:
            attempt.shown_at = now
        shown_s = SHOW_ERROR_S - (now - attempt.shown_at)
        if shown_s > 0:
            raise ImageWaits("ErrImagePull", attempt.error, min(shown_s, left_s))
        message = f'Back-off pulling image "{text}"'
        raise ImageWaits("ImagePullBackOff", f"{message}: {attempt.error}", left_s)

    async def _find(self, source: _Source) -> Image | None:
        """Return the image of the store, pinned."""
        return await asyncio.to_thread(self._find_and_pin, source)

    def _find_and_pin(self, source: _Source) -> Image | None:
        if isinstance(source, SifFile):
            image = self._find_file(source)
        else:
            # Not by digest alone: that would be a way to images of registries that refuse the pod.
            reference = source.reference if isinstance(source, OrasImage) else source
            name = str(source.by_digest(reference.digest) if reference.digest else source)
            image = self.node.store.find(name)
        if image is None:
            return None
        self.has_pinned = True
        try:
            self.node.store.pin(image.digest, str(self.pod["metadata"]["uid"]))
        except ImageNotFound:
            return None
        return image

    def _find_file(self, source: SifFile) -> Image | None:
        """Return the image of a SIF file that pods may read and that has not changed."""
        try:
            descriptor = self.node.open_file(source.path)
        except ImageError:
            return None  # the attempt to unpack it reports this
        try:
            return find_sif(self.node.store, descriptor, source)
        finally:
            os.close(descriptor)

    async def _pull(self, attempt: _Attempt, text: str, source: _Source, changed: Changed) -> None:
        clock = self.node.clock
        began = clock.monotonic()
        what = attempt.message
        self.event(self.pod, "Normal", "Pulling", what[0].upper() + what[1:])
        try:
            image = await self._fetch(attempt, text, source, changed)
            self.has_pinned = True
            await asyncio.to_thread(
                self.node.store.pin, image.digest, str(self.pod["metadata"]["uid"])
            )
            size = await asyncio.to_thread(self.node.store.image_bytes, image)
        except (ImageError, OSError) as error:
            self._fail(attempt, text, str(error))
        except Exception as error:
            log.exception("image %s cannot be pulled", text)
            self._fail(attempt, text, f"{type(error).__name__}: {error}")
        else:
            attempt.image, attempt.failures, attempt.error = image, 0, ""
            took = f"{clock.monotonic() - began:.1f} s"
            done = "unpacked" if isinstance(source, SifFile) else "pulled"
            message = f'Successfully {done} image "{text}" in {took}. Image size: {size} bytes.'
            self.event(self.pod, "Normal", "Pulled", message)
        finally:
            attempt.task = None
        changed(None)

    async def _fetch(
        self, attempt: _Attempt, text: str, source: _Source, changed: Changed
    ) -> Image:
        if isinstance(source, SifFile):
            pull = self.node.unpack(source)
        else:
            reference = source.reference if isinstance(source, OrasImage) else source
            pull = self.node.pull(source, await self._credentials(reference))
        pull.waiters += 1
        try:
            await self._watch(attempt, text, pull, changed)
        finally:
            pull.waiters -= 1
        if pull.task.cancelled():
            raise ImageNotFound(f'the pull of image "{text}" was interrupted; it is tried again')
        return pull.task.result()

    async def _watch(self, attempt: _Attempt, text: str, pull: _Pull, changed: Changed) -> None:
        """Wait for a pull, and report its progress: for many pods each one less often."""
        shown = attempt.message
        while not pull.task.done():
            pause_s = PROGRESS_S * max(1.0, pull.waiters / MAX_REPORTS)
            await asyncio.wait({pull.task}, timeout=pause_s)
            attempt.message = _progress(text, pull)
            if attempt.message != shown and not pull.task.done():
                shown = attempt.message
                changed(shown)

    async def _credentials(self, reference: Reference) -> Credentials | Path | None:
        names = secret_names(self.pod)
        secrets = await self.node.fetch_secrets(self.pod, names) if names else []
        known = {str(each["metadata"]["name"]) for each in secrets}
        if missing := [name for name in names if name not in known]:
            message = (
                f"Unable to retrieve some image pull secrets ({', '.join(missing)}); "
                "attempting to pull the image may not succeed."
            )
            self.event(self.pod, "Warning", "FailedToRetrieveImagePullSecret", message)
        return find_login(secrets, reference) or self.node.own_login()

    def _fail(self, attempt: _Attempt, text: str, message: str) -> None:
        attempt.failures += 1
        delay_s = min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2 ** min(attempt.failures - 1, 10))
        attempt.retry_at = self.node.clock.monotonic() + delay_s
        attempt.error, attempt.shown_at = message, None
        self.event(self.pod, "Warning", "Failed", f'Failed to pull image "{text}": {message}')
        self.event(self.pod, "Warning", "Failed", "Error: ErrImagePull")


def _progress(text: str, pull: _Pull) -> str:
    if text.startswith(FILE_PREFIX):
        return f'unpacking image "{text}"'
    if pull.is_waiting:
        return f'pulling image "{text}": waits for other pulls'
    if not pull.total_bytes:
        return f'pulling image "{text}"'
    if pull.done_bytes >= pull.total_bytes:
        return f'pulling image "{text}": unpacking'
    done, total = pull.done_bytes / (1 << 20), pull.total_bytes / (1 << 20)
    return f'pulling image "{text}": {done:.0f} of {total:.0f} MiB'
