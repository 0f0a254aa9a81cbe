"""Images in stores of tests."""

from __future__ import annotations

import io

from hekla.images.catalog import Image
from hekla.images.documents import Manifest, decode_config, decode_manifest
from hekla.images.store import ImageStore
from tests.images.builders import BuiltImage


def add(store: ImageStore, built: BuiltImage, *names: str, pullable: bool = True) -> Image:
    """Bring an image in, as a pull does."""
    manifest = decode_manifest(built.manifest, "x")
    config = decode_config(built.config, "x")
    assert isinstance(manifest, Manifest)
    with store.ingest() as ingest:
        for descriptor, diff_id in zip(manifest.layers, config.diff_ids, strict=True):
            if not ingest.use_layer(diff_id):
                blob = io.BytesIO(built.blobs[descriptor.digest])
                ingest.add_layer(blob, diff_id, "a layer of x", descriptor=descriptor)
        digests = [ingest.add_document(data) for data in (built.manifest, built.config)]
        image = Image(digests[0], digests[1], ingest.layers, config, pullable)
        ingest.add_image(image, names)
    return image


def files_of(store: ImageStore) -> dict[str, list[str]]:
    """Return what lies in the directories of a store."""
    names = ("blobs", "layers", "ingest", "locks")
    return {
        name: sorted(
            str(path.relative_to(store.directory / name))
            for path in (store.directory / name).glob("*" if name in ("ingest", "locks") else "*/*")
        )
        for name in names
    }
