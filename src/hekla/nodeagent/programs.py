"""What the containers of a pod run: programs of this machine, or an image.

The runtime that the pod's RuntimeClass names decides. Without one, images of the table are programs
of this machine, and others are real images.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from hekla.api.runtime_classes import HANDLERS, OCI, PROCESS, SIF
from hekla.images.errors import InvalidReference
from hekla.images.reference import OrasImage, SifFile, parse_image
from hekla.images.store import Image
from hekla.nodeagent.image_config import ImageConfigError
from hekla.nodeagent.image_pulls import ADVICE, Changed, ImageUnavailable, PodImages
from hekla.nodeagent.images import Environment, ImageTable, NotMapped
from hekla.units.objects import Object

FetchHandler = Callable[[str], Awaitable[str | None]]
"""Returns the handler of a RuntimeClass; None if there is no such class."""


class UnknownRuntime(Exception):
    """This node has no runtime of the handler that the pod's RuntimeClass names."""


class PodPrograms:
    """Finds what the containers of one pod run."""

    def __init__(
        self, pod: Object, table: ImageTable, images: PodImages | None, fetch: FetchHandler
    ) -> None:
        """`images` is None if only images of the table run."""
        self._class = str(pod["spec"].get("runtimeClassName") or "")
        self._table = table
        self._images = images
        self._fetch = fetch
        self._handler: str | None = None

    async def find(self, container: Object, changed: Changed) -> Environment | Image:
        """Return what a container runs; raise NotMapped, ImageWaits, or an error of the class."""
        handler, text = await self._runtime(), str(container["image"])
        if handler == PROCESS:
            return self._table.resolve(text)
        if handler:
            return await self._image_of(handler, container, changed)
        try:
            return self._table.resolve(text)
        except NotMapped as error:
            if self._images is None:
                raise
            return await self._image(container, changed, str(error))

    async def _image_of(self, handler: str, container: Object, changed: Changed) -> Image:
        """Return the image of a container whose class asks for one of a kind."""
        what, text = f"RuntimeClass {self._class!r}", str(container["image"])
        if (handler == SIF) != self._is_sif(text):
            wanted = (
                "runs SIF images: write file:///path/x.sif or oras://NAME, or load the file with "
                "`hekla image load x.sif --name NAME`"
                if handler == SIF
                else "runs container images, and not SIF files: use the class sif, or none"
            )
            raise ImageConfigError(f"{what} {wanted} (the image is {text!r})")
        return await self._image(container, changed, what)

    def _is_sif(self, text: str) -> bool:
        """Return whether an image is a SIF file, or was loaded from one under its name."""
        with contextlib.suppress(InvalidReference):
            source = parse_image(text)
            if isinstance(source, SifFile | OrasImage):
                return True
            known = self._images and self._images.node.store.find(str(source))
            return bool(known and known.sif)
        return False

    async def _runtime(self) -> str:
        """Return the runtime of the pod; empty if the images of its containers decide."""
        if self._handler is None:
            self._handler = await self._fetch_handler() if self._class else ""
        return self._handler

    async def _fetch_handler(self) -> str:
        handler = await self._fetch(self._class)
        if handler is None:
            raise UnknownRuntime(
                f"the RuntimeClass {self._class!r} was deleted; create it again, or delete the pod"
            )
        if handler not in HANDLERS:
            raise UnknownRuntime(
                f'no runtime for "{handler}" is configured, the handler of the RuntimeClass '
                f"{self._class!r}; this node has {', '.join(HANDLERS)}: use one of these classes"
            )
        return handler

    async def _image(self, container: Object, changed: Changed, why: str) -> Image:
        """Return the image of a container; `why` says why it is not a program of this machine."""
        if self._images is None:
            raise NotMapped(f"{why}: images do not run on this node")
        if problem := await self._images.node.problem():
            raise NotMapped(f"{why}; images do not run here: {problem}")
        try:
            return await self._images.require(container, changed)
        except ImageUnavailable as error:
            if self._handler == OCI:
                why += f" runs the image {container['image']!r}, which is not here: load it"
            raise NotMapped(f"{why}; {ADVICE}") from error
