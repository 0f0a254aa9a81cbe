"""A hostile layer is refused, and touches nothing outside of its directory."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.images.errors import DiskFull, InvalidImage, StoreError, UnsupportedImage
from hekla.images.layers import Limits, Unpacked, unpack
from hekla.images.tree import remove_tree
from tests.images.builders import File, directory, entry, file, hard_link, symlink, tar

LIMITS = Limits(entries=200, bytes=8 << 20)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A directory for a layer, with a file beside it that must not change."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    where = tmp_path / "layer"
    where.mkdir()
    yield where
    assert os.listdir(tmp_path / "outside") == ["secret"]
    assert (tmp_path / "outside/secret").read_text() == "secret"
    assert (tmp_path / "outside/secret").stat().st_nlink == 1
    assert sorted(os.listdir(tmp_path)) == ["layer", "outside"]
    remove_tree(where)


def put(data: bytes, root: Path, limits: Limits = LIMITS) -> Unpacked:
    return unpack(io.BytesIO(data), root, "layer 1 of x", limits)


REFUSED = {
    "a path upwards": ([file("../outside/new")], "leads upwards"),
    "a path upwards in the middle": ([file("a/../../outside/new")], "leads upwards"),
    "a directory upwards": ([directory("../outside")], "leads upwards"),
    "a hard link upwards": ([hard_link("a", "../outside/secret")], "leads upwards"),
    "a hard link to the host": ([hard_link("a", "/etc/passwd")], "not in this layer"),
    "a hard link to a layer below": ([hard_link("a", "bin/sh")], "not in this layer"),
    "a hard link through a link outside": (
        [symlink("out", "../outside"), hard_link("a", "out/secret")],
        "not in this layer",
    ),
    "a hard link to a directory": ([directory("d"), hard_link("a", "d")], "to a directory"),
    "a hard link to a deleted file": ([file(".wh.f"), hard_link("a", "f")], "deleted file"),
    "a hard link to the root": ([hard_link("a", "/")], "to the root"),
    "a whiteout of a parent": ([file("a/.wh...")], "or one above it"),
    "a whiteout of its directory": ([file("a/.wh..")], "or one above it"),
    "a whiteout of nothing": ([file("a/.wh.")], "or one above it"),
    "a whiteout upwards": ([file("../outside/.wh.secret")], "leads upwards"),
    "a file with files below it": ([file("a"), file("a/b")], "has files below it"),
    "a link to itself": ([symlink("a", "a"), file("a/b")], "too many links"),
    "links in a circle": (
        [symlink("a", "b/x"), symlink("b", "a/x"), file("a/b")],
        "too many links",
    ),
    "a link to nothing": ([symlink("a", "")], "link to nothing"),
    "a root that is a file": ([file("./")], "is the root"),
    "a root that is a link": ([symlink("/", "/etc")], "is the root"),
    "a name of 300 bytes": ([file("n" * 300)], "cannot be unpacked: File name too long"),
    "a path of 5000 bytes": ([file("n/" * 2500)], "5000 bytes"),
    "a link of 5000 bytes": ([symlink("a", "t" * 5000)], "link of 5000 bytes"),
    "300 levels of directories": ([file("d/" * 300 + "f")], "255 deep"),
    "an owner beyond all users": ([file("a", uid=1 << 40)], "owner"),
}


@pytest.mark.parametrize(("members", "why"), REFUSED.values(), ids=REFUSED)
def test_hostile_entries_are_refused(
    members: list[tarfile.TarInfo | File], why: str, root: Path
) -> None:
    with pytest.raises(InvalidImage, match=f"^layer 1 of x.*{why}"):
        put(tar(*members), root)


def test_links_that_lead_outside_mean_the_layers_root(root: Path) -> None:
    put(
        tar(symlink("up", "../../../../outside"), file("up/secret", b"mine"),
            symlink("abs", str(root.parent / "outside")), file("abs/secret", b"mine"),
            symlink("self", "/proc/self/root"), file("self/etc/secret", b"mine")),
        root,
    )  # fmt: skip
    assert (root / "outside/secret").read_bytes() == b"mine"
    assert (root / "proc/self/root/etc/secret").read_bytes() == b"mine"


def test_whiteout_through_a_link_stays_inside(root: Path) -> None:
    put(tar(symlink("up", "../outside"), file("up/.wh.secret"), file("up/.wh..wh..opq")), root)
    assert os.listdir(root / "outside") == ["secret"]


def test_file_is_never_written_through_a_link(root: Path) -> None:
    put(tar(symlink("a", "../outside/secret"), file("a", b"changed")), root)
    assert (root / "a").read_bytes() == b"changed"
    assert not (root / "a").is_symlink()


def test_directory_entry_over_a_link_replaces_the_link(root: Path) -> None:
    put(tar(symlink("a", "../outside"), directory("a", mode=0o777), file("a/x")), root)
    assert not (root / "a").is_symlink()


def test_absolute_names_mean_the_layers_root(root: Path) -> None:
    put(tar(file("/etc/hekla-test", b"1"), file("/.wh.gone"), file("//x")), root)
    assert (root / "etc/hekla-test").exists()
    assert not Path("/etc/hekla-test").exists()


def test_links_to_deep_directories_cannot_make_deeper_ones(root: Path) -> None:
    deep = "/".join("d" * 200)
    with pytest.raises(InvalidImage, match="255 deep"):
        put(tar(directory(deep), symlink("l", deep), directory(f"l/{deep}")), root, Limits(1000))


def test_links_that_multiply_the_work_of_each_entry_are_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.images.tree.MAX_STEPS", 100_000)
    chain = [symlink(f"l{number}", "d/../" * 400 + f"l{number + 1}") for number in range(30)]
    files = [file(f"l0/{number}") for number in range(50)]
    with pytest.raises(InvalidImage, match="too many directories and links"):
        put(tar(directory("d"), *chain, directory("l30"), *files), root)


# Sizes


def test_too_many_small_files_are_refused(root: Path) -> None:
    with pytest.raises(InvalidImage, match="more than 200 files"):
        put(tar(*(file(f"f{number}", b"") for number in range(201))), root)


def test_too_many_directories_that_are_not_named_are_refused(root: Path) -> None:
    with pytest.raises(InvalidImage, match="more than 200 files"):
        put(tar(*(file(f"{number}/" * 60 + "f") for number in range(5))), root)


def test_more_bytes_than_there_is_space_are_refused_before_they_are_written(root: Path) -> None:
    with pytest.raises(DiskFull, match="more than 8 MiB, the space that is left"):
        put(tar(file("a", bytes(9 << 20))), root)
    assert os.listdir(root) == []


def test_hole_of_many_terabytes_is_refused(root: Path) -> None:
    info = entry("a", pax_headers={
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)
    })  # fmt: skip
    info.size = 512
    with pytest.raises(DiskFull):
        put(tar((info, b"0\n" + bytes(510))), root)


def test_decompression_bomb_is_refused(root: Path) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    with pytest.raises(DiskFull):
        put(bomb, root)


def test_ratio_of_a_bomb_is_refused_where_the_disk_is_large(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.images.compression._RATIO_FROM_BYTES", 1 << 20)
    bomb = gzip.compress(tar(file("a", bytes(16 << 20))))
    with pytest.raises(InvalidImage, match="more than 200 times its size"):
        put(bomb, root, Limits())


def test_bomb_behind_the_end_of_the_archive_is_refused(root: Path) -> None:
    with pytest.raises(DiskFull):
        put(gzip.compress(tar(file("a")) + bytes(64 << 20)), root)


# Headers


def raw_header(kind: bytes, size: int, name: bytes = b"x") -> bytes:
    block = bytearray(tarfile.TarInfo("x").tobuf(tarfile.USTAR_FORMAT))
    block[:100] = name.ljust(100, b"\0")
    binary = (b"\xff" if size < 0 else b"\x80") + size.to_bytes(11, "big", signed=True)
    block[124:136] = b"%011o\0" % size if 0 <= size < 8**11 else binary
    block[156:157] = kind
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("kind", [b"x", b"L", b"K", b"g"])
def test_headers_of_gigabytes_are_refused_without_reading_them(kind: bytes, root: Path) -> None:
    tracemalloc.start()
    with pytest.raises(InvalidImage, match="1048576 is the limit"):
        put(raw_header(kind, 8 << 30) + bytes(1 << 20), root)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


def test_endless_headers_are_refused(root: Path) -> None:
    one = raw_header(b"x", 12) + b"12 path=aaa\n".ljust(512, b"\0")
    with pytest.raises(InvalidImage, match="is the limit"):
        put(one * 3000, root)


BAD_HEADERS = {
    "a wrong checksum": (b"y" + raw_header(b"0", 0)[1:], "wrong checksum"),
    "a negative size": (raw_header(b"0", -5), "negative"),
    "a size of 2^80": (raw_header(b"0", 1 << 80), "has the number"),
    "an unknown type": (raw_header(b"Z", 0), "type b'Z'"),
    "half a header": (raw_header(b"0", 0)[:300], "ends in the middle"),
    "half a file": (raw_header(b"0", 1000) + bytes(512), "ends in the middle"),
    "no padding": (raw_header(b"0", 5) + b"12345", "ends in the middle"),
    "pax without a length": (raw_header(b"x", 9) + b"path=abc\n".ljust(512, b"\0"), "pax header"),
    "pax with a wrong length": (raw_header(b"x", 9) + b"99 a=bcd\n".ljust(512, b"\0"), "pax"),
    "pax with a length of 0": (raw_header(b"x", 8) + b"0 a=bcd\n".ljust(512, b"\0"), "pax header"),
    "pax without a value": (raw_header(b"x", 5) + b"5 ab\n".ljust(512, b"\0"), "without a value"),
    "a pax size of words": (
        raw_header(b"x", 11) + b"11 size=-1\n".ljust(512, b"\0") + raw_header(b"0", 0),
        "number b'-1'",
    ),
    "a zero byte in a pax path": (
        raw_header(b"x", 11) + b"11 path=a\0b".ljust(10, b"b")[:10] + b"\n" + bytes(501)
        + raw_header(b"0", 0),
        "pax|zero byte",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("data", "why"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_malformed_headers_are_refused(data: bytes, why: str, root: Path) -> None:
    with pytest.raises(InvalidImage, match=f"layer 1 of x.*(?:{why})"):
        put(data, root)


def sparse(text: bytes, realsize: int, data: bytes = b"") -> bytes:
    info = entry("a", pax_headers={
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(realsize)
    })  # fmt: skip
    body = text.ljust(-(-len(text) // 512) * 512, b"\0") + data
    info.size = len(body)
    return tar((info, body))


BAD_HOLES = {
    "parts that overlap": (sparse(b"2\n0\n5\n3\n5\n", 100, bytes(10)), "overlap"),
    "a part beyond the end": (sparse(b"1\n99\n5\n", 100, bytes(5)), "overlap"),
    "less data than its parts": (sparse(b"1\n0\n50\n", 100, bytes(5)), "another size"),
    "a million parts": (sparse(b"1000000\n0\n0\n", 100), "10000 holes"),
    "a map without lines": (sparse(b"1" * 600, 100), "cannot be read"),
    "a map that does not end": (sparse(b"5\n1\n", 100), "ends in the middle"),
    "a map of words": (sparse(b"1\na\nb\n", 100), "number b'a'"),
}


@pytest.mark.parametrize(("data", "why"), BAD_HOLES.values(), ids=BAD_HOLES)
def test_malformed_holes_are_refused(data: bytes, why: str, root: Path) -> None:
    with pytest.raises(InvalidImage, match=why):
        put(data, root)


def test_old_form_of_holes_is_refused_with_what_to_do(root: Path) -> None:
    info = entry("a", pax_headers={"GNU.sparse.size": "100", "GNU.sparse.numblocks": "0"})
    with pytest.raises(UnsupportedImage, match="after 2006"):
        put(tar(info), root)


DAMAGED = {
    "cut off": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-4],
    "with one byte changed": lambda data: data[:100] + bytes([data[100] ^ 0xFF]) + data[101:],
    "with words behind": lambda data: data + b"words",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_compression_is_refused(name: str, root: Path) -> None:
    whole = gzip.compress(tar(file("a", os.urandom(100_000))))
    with pytest.raises(InvalidImage, match="cannot be decompressed"):
        put(DAMAGED[name](whole), root)


@given(data=st.data())
def test_any_change_of_a_layer_stays_inside_its_directory(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = st.sampled_from(
        ["a", "b", "a/b", "b/a", "../x", "/a", ".wh.a", "a/.wh..wh..opq", "a/b/c"]
    )
    targets = st.sampled_from(["a", "b", "/", "..", "../..", "../outside", "/outside", "b/a", "."])
    members = data.draw(
        st.lists(
            names.map(directory)
            | names.map(file)
            | st.builds(symlink, names, targets)
            | st.builds(hard_link, names, targets),
            max_size=12,
        )
    )
    where = tmp_path_factory.mktemp("any")
    (where / "outside").mkdir()
    (where / "layer").mkdir()
    try:
        put(tar(*members), where / "layer")
    except InvalidImage:
        pass
    except StoreError as error:
        raise AssertionError(members) from error
    assert sorted(os.listdir(where)) == ["layer", "outside"]
    assert os.listdir(where / "outside") == []
    remove_tree(where)


@given(
    st.binary(max_size=2000) | st.binary(max_size=600).map(lambda junk: raw_header(b"0", 5) + junk)
)
def test_any_bytes_are_a_layer_or_refused(data: bytes) -> None:

    with tempfile.TemporaryDirectory() as where:
        try:
            put(data, Path(where))
        except InvalidImage:
            return
