"""Errors of images.

    ImageError
    ├── InvalidReference        the text is not the name of an image
    ├── InvalidImage            a document, layer or archive is malformed, or exceeds a limit
    │   ├── DigestMismatch      the bytes are not the ones that the digest names
    │   └── UnsupportedImage    well-formed, but of a kind that cannot be used here
    │       └── NoSuchPlatform  built for other machines only
    ├── ImagePullError          the image could not be fetched
    │   ├── ImageNotFound       neither the registry nor the store has it
    │   ├── Unauthorized        the registry wants other credentials
    │   ├── RegistryUnavailable no usable answer; trying again later may help
    │   └── ToolMissing         the program that speaks to registries is not installed
    └── StoreError              the store of this machine cannot do it
        ├── DiskFull            no space left; what was half-written is removed
        └── ImageInUse          a container uses the image

Messages name the object, the fact and the next step. They contain no credentials.
"""

from __future__ import annotations


class ImageError(Exception):
    """Base class of all errors of images."""


class InvalidReference(ImageError, ValueError):
    """The text is not the name of an image."""


class InvalidImage(ImageError):
    """A document, a layer or an archive is malformed, or exceeds a limit."""


class DigestMismatch(InvalidImage):
    """The bytes are not the ones that the digest names."""


class UnsupportedImage(InvalidImage):
    """The image is well-formed, but of a kind that cannot be used here."""


class NoSuchPlatform(UnsupportedImage):
    """The image is built for other machines only."""


class ImagePullError(ImageError):
    """The image could not be fetched."""


class ImageNotFound(ImagePullError):
    """Neither the registry nor the store has the image."""


class Unauthorized(ImagePullError):
    """The registry wants other credentials, or does not allow the image for these."""


class RegistryUnavailable(ImagePullError):
    """The registry gave no usable answer; trying again later may help."""


class ToolMissing(ImagePullError):
    """The program that speaks to registries is not installed."""


class StoreError(ImageError):
    """The store of images on this machine cannot do what was asked."""


class DiskFull(StoreError):
    """There is no space left for an image; what was half-written is removed."""


class ImageInUse(StoreError):
    """A container uses the image."""
