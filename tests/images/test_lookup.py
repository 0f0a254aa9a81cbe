"""Files of an image, read from its layers without mounting them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hekla.images.errors import InvalidImage
from hekla.images.layers import limits_for, unpack
from hekla.images.lookup import read_file
from tests.images.builders import directory, file, symlink, tar


def layers(tmp_path: Path, *blobs: bytes) -> list[Path]:
    """Unpack layers, the bottom one first; return them topmost first."""
    found: list[Path] = []
    for number, blob in enumerate(blobs):
        path = tmp_path / f"layer{number}"
        path.mkdir()
        unpack(io.BytesIO(blob), path, "the layer", limits_for(tmp_path), lowers=found)
        found.insert(0, path)
    return found


def test_topmost_layer_counts(tmp_path: Path) -> None:
    base = tar(directory("etc"), file("etc/passwd", b"old"), file("etc/group", b"group"))
    found = layers(tmp_path, base, tar(directory("etc"), file("etc/passwd", b"new")))
    assert read_file(found, "/etc/passwd") == b"new"
    assert read_file(found, "/etc/group") == b"group"
    assert read_file(found, "/etc/shadow") is None
    assert read_file(found, "/etc") is None


@pytest.mark.parametrize(
    "top",
    [
        pytest.param(tar(directory("etc"), file("etc/.wh.passwd")), id="file"),
        pytest.param(tar(file(".wh.etc")), id="directory"),
        pytest.param(tar(directory("etc"), file("etc/.wh..wh..opq")), id="opaque"),
        pytest.param(tar(file("etc", b"a file")), id="replaced"),
    ],
)
def test_deleted_file_is_not_found(tmp_path: Path, top: bytes) -> None:
    found = layers(tmp_path, tar(directory("etc"), file("etc/passwd", b"old")), top)
    assert read_file(found, "/etc/passwd") is None


def test_links_stay_inside_the_image(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("of the host")
    (tmp_path / "passwd").write_text("of the host")
    links = tar(
        directory("store"),
        file("store/passwd", b"inside"),
        directory("etc"),
        symlink("etc/passwd", "/store/passwd"),
        symlink("etc/relative", "../../../store/passwd"),
        symlink("etc/out", str(tmp_path / "outside")),
        symlink("etc/up", "../../passwd"),
        symlink("loop", "loop"),
        symlink("dir", "/store"),
    )
    found = layers(tmp_path, links)
    assert read_file(found, "/etc/passwd") == b"inside"
    assert read_file(found, "/etc/relative") == b"inside"
    assert read_file(found, "/dir/passwd") == b"inside"
    for path in ("/etc/out", "/etc/up", "/loop", "/../../outside"):
        assert read_file(found, path) is None


def test_huge_file_is_refused(tmp_path: Path) -> None:
    found = layers(tmp_path, tar(file("passwd", bytes(2 << 20))))
    with pytest.raises(InvalidImage, match="1 MiB"):
        read_file(found, "/passwd")
