"""SIF images in registries, from a real one and from one that lies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hekla.images.documents import OCI_LAYER
from hekla.images.errors import DigestMismatch, ImageError, InvalidImage, UnsupportedImage
from hekla.images.lookup import read_file
from hekla.images.reference import OrasImage
from hekla.images.store import ImageStore
from hekla.images.transfer import Puller
from tests.images import sifs
from tests.images.builders import file, image, sha256, tar
from tests.images.registry import LyingRegistry, RealRegistry
from tests.images.stores import files_of


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("content")
    return sifs.sif(sifs.partition(sifs.squashfs(tmp_path / "root")))


async def test_sif_is_pulled_once(
    real: RealRegistry, live: ImageStore, skopeo: str, data: bytes
) -> None:
    built = sifs.artifact(data)
    source = OrasImage(real.push("team/app:1", built))
    seen: list[tuple[int, int]] = []
    puller = Puller(live, program=skopeo)
    found = await puller.pull_sif(source, progress=lambda *at: seen.append(at), holder="pod")
    assert found.digest == sha256(data)
    assert found.sif is not None
    assert read_file(live.lower_directories(found), "/file") == b"content"
    assert seen[-1] == (len(data), len(data))
    assert live.find(str(source)) == live.find(str(source.by_digest(built.digest))) == found
    assert live.pins() == {"pod": {found.digest}}
    seen.clear()
    assert await puller.pull_sif(source, progress=lambda *at: seen.append(at)) == found
    assert seen == []
    assert files_of(live)["ingest"] == files_of(live)["locks"] == []
    live.unpin("pod")
    assert live.collect(0).images == (found.digest,)


async def test_kinds_are_not_mixed_up(real: RealRegistry, live: ImageStore, skopeo: str) -> None:
    puller = Puller(live, program=skopeo)
    container = real.push("container:1", image(tar(file("a", b"a"))))
    with pytest.raises(UnsupportedImage, match="leave out oras://"):
        await puller.pull_sif(OrasImage(container))
    sif = real.push("sif:1", sifs.artifact(b"x"))
    with pytest.raises(UnsupportedImage, match="write oras:// before its name"):
        await puller.pull(sif)
    with pytest.raises(InvalidImage, match="is not a SIF file"):
        await puller.pull_sif(OrasImage(sif))
    layers = real.push("layers:1", sifs.artifact(b"x", OCI_LAYER))
    with pytest.raises(UnsupportedImage, match="not a SIF image of one file"):
        await puller.pull_sif(OrasImage(layers))


async def test_name_of_a_file_is_no_way_to_it(
    lying: LyingRegistry, live: ImageStore, skopeo: str, data: bytes, tmp_path: Path
) -> None:
    """A registry that names the digest of another user's file must have the file itself."""
    path = tmp_path / "private.sif"
    path.write_bytes(data)
    private = OrasImage(lying.put("private", sifs.artifact(data)))
    puller = Puller(live, program=skopeo)
    await puller.pull_sif(private)
    forged = sifs.artifact(data)
    body = json.loads(forged.manifest)
    body["annotations"] = {"by": "somebody else"}
    forged.manifest = json.dumps(body).encode()
    source = OrasImage(lying.put("forged", forged))
    del lying.answers[f"blobs/{sha256(data)}"]
    with pytest.raises(ImageError):
        await puller.pull_sif(source)
    assert live.find(str(source)) is None


async def test_changed_file_is_refused(
    lying: LyingRegistry, live: ImageStore, skopeo: str, data: bytes
) -> None:
    source = OrasImage(lying.put("1", sifs.artifact(data)))
    changed = bytearray(data)
    changed[-1] ^= 1
    lying.answers[f"blobs/{sha256(data)}"] = bytes(changed)
    with pytest.raises(DigestMismatch):
        await Puller(live, program=skopeo).pull_sif(source)
    assert files_of(live)["layers"] == []
