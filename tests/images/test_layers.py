"""A layer is unpacked as it was packed, into a form that overlayfs reads."""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hekla.images.errors import InvalidImage, UnsupportedImage
from hekla.images.layers import Limits, Unpacked, limits_for, unpack
from hekla.images.tree import remove_tree
from tests.images.builders import NOW, File, directory, entry, file, hard_link, sha256, symlink, tar

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="needs root: owners and overlayfs")
LIMITS = Limits(entries=1000, bytes=64 << 20)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "layer"
    where.mkdir()
    yield where
    remove_tree(where)


def put(data: bytes, root: Path, *lowers: Path) -> Unpacked:
    return unpack(io.BytesIO(data), root, "layer 1 of x", LIMITS, lowers=lowers)


def is_whiteout(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == 0


def is_opaque(path: Path) -> bool:
    return os.getxattr(path, "user.overlay.opaque") == b"y"


def test_files_directories_and_links_are_made_with_their_attributes(root: Path) -> None:
    data = tar(
        directory("a", mode=0o750),
        file("a/run", b"#!", mode=0o4755, mtime=NOW + 5),
        symlink("a/link", "/etc/passwd"),
        hard_link("b", "a/run"),
        entry("fifo", tarfile.FIFOTYPE, mode=0o622),
    )
    found = put(data, root)
    assert (root / "a/run").read_bytes() == b"#!"
    assert stat.S_IMODE((root / "a/run").stat().st_mode) == 0o4755
    assert (root / "a/run").stat().st_mtime == NOW + 5
    assert (root / "a").stat().st_mtime == NOW
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o750
    assert os.readlink(root / "a/link") == "/etc/passwd"
    assert (root / "a/link").lstat().st_mtime == NOW
    assert (root / "b").stat().st_ino == (root / "a/run").stat().st_ino
    assert stat.S_ISFIFO((root / "fifo").stat().st_mode)
    assert stat.S_IMODE((root / "fifo").stat().st_mode) == 0o622
    assert (found.written.entries, found.written.devices, found.written.inherits) == (5, 0, False)


@as_root
def test_owners_are_numbers_of_the_image(root: Path) -> None:
    put(tar(file("a", uid=1000, gid=4_000_000_000), directory("d", uid=5, gid=6)), root)
    assert ((root / "a").stat().st_uid, (root / "a").stat().st_gid) == (1000, 4_000_000_000)
    assert ((root / "d").stat().st_uid, (root / "d").stat().st_gid) == (5, 6)


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "gzip": gzip.compress,
    "gzip in two members": lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:]),
    "gzip with zeros behind": lambda data: gzip.compress(data) + bytes(1000),
    "zstd": zstd.compress,
    "zstd in two frames": lambda data: zstd.compress(data[:700]) + zstd.compress(data[700:]),
    "zstd with a skippable frame": lambda data: (
        b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"skip" + zstd.compress(data)
    ),
}


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_layer_in_any_compression_has_both_digests(name: str, root: Path) -> None:
    data = tar(file("a", os.urandom(3000) * 1000))
    blob = COMPRESSIONS[name](data)
    found = put(blob, root)
    assert (found.diff_id, found.blob_digest) == (sha256(data), sha256(blob))
    assert found.blob_bytes == len(blob)
    assert (root / "a").stat().st_size == 3_000_000


@pytest.mark.parametrize("compress", [gzip.compress, zstd.compress])
@pytest.mark.parametrize("chunk", [50, 1000])
def test_decoder_that_returns_nothing_for_a_moment_is_not_at_its_end(
    compress: Callable[[bytes], bytes], chunk: int, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After output of exactly the largest size, zstd has nothing, and wants input only then."""
    monkeypatch.setattr("hekla.images.compression._MOST_OUTPUT", 128 << 10)
    monkeypatch.setattr("hekla.images.compression.CHUNK_BYTES", chunk)
    data = tar(file("zeros", bytes(3 << 20)))
    assert put(compress(data), root).diff_id == sha256(data)


@pytest.mark.parametrize("magic", [b"BZh91AY", b"\xfd7zXZ\0", b"\x04\x22\x4d\x18"])
def test_other_compressions_are_refused_by_name(magic: bytes, root: Path) -> None:
    with pytest.raises(UnsupportedImage, match="use gzip or zstd"):
        put(magic + bytes(600), root)


def test_sha512_is_taken_where_the_image_uses_it(root: Path) -> None:
    found = unpack(io.BytesIO(tar(file("a"))), root, "x", LIMITS, algorithm="sha512")
    assert found.diff_id.startswith("sha512:")
    assert len(found.diff_id) == 7 + 128


FORMATS = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}


@pytest.mark.parametrize("format", FORMATS.values(), ids=FORMATS)
def test_long_names_and_links_are_kept(format: int, root: Path) -> None:
    deep = "/".join(["d" * 90] * 4)
    data = tar(file(f"{deep}/é", b"1"), symlink("link", "t" * 300), format=format)
    put(data, root)
    assert (root / deep / "é").read_bytes() == b"1"
    assert os.readlink(root / "link") == "t" * 300


def test_names_that_are_not_utf8_are_kept(root: Path) -> None:
    put(tar(file("caf\udce9"), format=tarfile.GNU_FORMAT), root)
    assert os.listdir(os.fsencode(root)) == [b"caf\xe9"]


def test_times_have_nanoseconds_and_stay_in_range(root: Path) -> None:
    times = {"a": "1700000000.123456789", "b": "-5.5", "c": "99999999999999", "d": "7"}
    members = [entry(name, pax_headers={"mtime": mtime}) for name, mtime in times.items()]
    put(tar(*members), root)
    found = [(root / name).stat().st_mtime_ns for name in "abcd"]
    assert found == [1_700_000_000_123_456_789, 0, (1 << 33) * 10**9, 7 * 10**9]


def test_user_attributes_are_kept_and_those_of_overlayfs_are_not(root: Path) -> None:
    names = ("user.mine", "user.overlay.redirect", "trusted.overlay.opaque", "security.selinux")
    headers = {f"SCHILY.xattr.{name}": "y" for name in names}
    put(tar(file("a", pax_headers=headers), directory("d", pax_headers=headers)), root)
    assert [name for name in os.listxattr(root / "a") if name != "security.selinux"] == [
        "user.mine"
    ]
    assert "user.overlay.redirect" not in os.listxattr(root / "d")
    assert "trusted.overlay.opaque" not in os.listxattr(root / "d")


@as_root
def test_capabilities_of_a_program_are_kept(root: Path) -> None:
    # cap_net_raw+ep, revision 2
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    info = entry("ping", pax_headers={"SCHILY.xattr.security.capability": value.decode("latin-1")})
    put(tar(info), root)
    assert os.getxattr(root / "ping", "security.capability") == value


# Holes


@pytest.mark.parametrize("format", ["gnu", "pax"])
def test_files_with_holes_have_their_data_at_the_right_places(
    format: str, root: Path, tmp_path: Path
) -> None:
    whole = tmp_path / "sparse"
    with whole.open("wb") as out:
        for number in range(40):
            out.seek(number * 100_000)
            out.write(b"data %d" % number)
        out.truncate(5_000_000)
    words = ["tar", "-S", f"--format={format}", "-C", str(tmp_path), "-cf", "-", "sparse"]
    packed = subprocess.run(words, check=True, capture_output=True).stdout
    assert len(packed) < 1_000_000
    put(packed, root)
    assert (root / "sparse").read_bytes() == whole.read_bytes()


# Whiteouts


def test_whiteouts_take_the_form_of_overlayfs(root: Path) -> None:
    put(tar(file("etc/.wh.gone"), directory("opt"), file("opt/.wh..wh..opq"), file("opt/a")), root)
    assert is_whiteout(root / "etc/gone")
    assert is_opaque(root / "opt")
    assert sorted(os.listdir(root / "opt")) == ["a"]


def test_markers_of_aufs_are_left_out(root: Path) -> None:
    put(tar(file(".wh..wh.aufs"), directory(".wh..wh.plnk"), directory(".wh..wh.orph")), root)
    assert os.listdir(root) == []


@pytest.mark.parametrize("whiteout_first", [True, False])
def test_directory_that_is_deleted_and_made_anew_is_opaque(
    whiteout_first: bool, root: Path
) -> None:
    members = [entry(".wh.d"), directory("d")]
    put(tar(*(members if whiteout_first else members[::-1]), file("d/new")), root)
    assert is_opaque(root / "d")
    assert os.listdir(root / "d") == ["new"]


@pytest.mark.parametrize("whiteout_first", [True, False])
def test_file_that_is_deleted_and_made_anew_is_the_new_one(
    whiteout_first: bool, root: Path
) -> None:
    members: list[tarfile.TarInfo | File] = [entry(".wh.f"), file("f", b"new")]
    put(tar(*(members if whiteout_first else members[::-1])), root)
    assert (root / "f").read_bytes() == b"new"


@as_root
@pytest.mark.parametrize("options", ["", "userxattr,"])
def test_layers_work_as_lower_directories(options: str, tmp_path: Path) -> None:
    below, above, merged = (tmp_path / name for name in ("below", "above", "merged"))
    for path in (below, above, merged):
        path.mkdir()
    put(tar(file("gone"), file("kept"), file("dir/old"), file("again/old")), below)
    put(
        tar(entry(".wh.gone"), directory("dir"), entry("dir/.wh..wh..opq"), file("dir/new"),
            entry(".wh.again"), directory("again")),
        above,
        below,
    )  # fmt: skip
    script = (
        f"mount -t overlay overlay -o ro,{options}lowerdir={above}:{below} {merged} && "
        f"cd {merged} && find . | sort"
    )
    words = ["unshare", "--mount", "sh", "-ec", script]
    listed = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert listed == [".", "./again", "./dir", "./dir/new", "./kept"]


# What the layer does not name


def test_parents_that_are_not_named_are_made(root: Path) -> None:
    found = put(tar(file("a/b/c")), root)
    assert stat.S_IMODE((root / "a/b").stat().st_mode) == 0o755
    assert (root / "a").stat().st_mtime == NOW
    assert found.written.inherits


def test_parents_that_are_not_named_are_as_in_the_layers_below(root: Path, tmp_path: Path) -> None:
    bottom, middle = tmp_path / "bottom", tmp_path / "middle"
    for path in (bottom, middle):
        path.mkdir()
    put(tar(directory("tmp", mode=0o1777), directory("gone", mode=0o700)), bottom)
    put(tar(entry(".wh.gone")), middle, bottom)
    found = put(tar(file("tmp/x"), file("gone/x")), root, middle, bottom)
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777
    assert stat.S_IMODE((root / "gone").stat().st_mode) == 0o755  # deleted in between
    assert found.written.inherits


def test_root_that_is_named_has_its_attributes(root: Path) -> None:
    put(tar(directory("./", mode=0o711), file("./a")), root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o711
    assert root.stat().st_mtime == NOW


def test_links_of_the_layer_are_followed_inside_it(root: Path) -> None:
    put(
        tar(directory("usr/lib"), symlink("lib", "usr/lib"), file("lib/a"),
            symlink("abs", "/usr/lib"), file("abs/b"), symlink("usr/up", "../../../usr/lib"),
            file("usr/up/c")),
        root,
    )  # fmt: skip
    assert sorted(os.listdir(root / "usr/lib")) == ["a", "b", "c"]
    assert (root / "lib").is_symlink()


# Entries that replace each other


def test_later_entry_replaces_an_earlier_one(root: Path) -> None:
    put(
        tar(file("a", b"1"), hard_link("b", "a"), file("a", b"2"),
            directory("d"), file("d/x/y"), file("d", b"file"),
            file("e", b"file"), directory("e"), file("e/x"),
            directory("f", mode=0o700), file("f/x"), directory("f", mode=0o755),
            symlink("g", "a"), file("g", b"3")),
        root,
    )  # fmt: skip
    assert ((root / "a").read_bytes(), (root / "b").read_bytes()) == (b"2", b"1")
    assert (root / "d").read_bytes() == b"file"
    assert (root / "e/x").exists()
    assert (root / "f/x").exists()
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o755
    assert ((root / "g").read_bytes(), (root / "a").read_bytes()) == (b"3", b"2")


def test_hard_link_to_itself_changes_nothing(root: Path) -> None:
    put(tar(file("a", b"1"), hard_link("./a", "a"), hard_link("b", "a"), hard_link("b", "a")), root)
    assert (root / "a").read_bytes() == (root / "b").read_bytes() == b"1"


def test_directory_with_mode_0_in_the_middle_gets_its_files(root: Path) -> None:
    many = [file(f"n{number}/x") for number in range(70)]  # more than are kept open
    put(tar(directory("a", mode=0), *many, file("a/b"), directory("a/c", mode=0)), root)
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0
    assert (root / "a").stat().st_mtime == NOW


@as_root
def test_ordinary_user_unpacks_a_layer_as_its_own() -> None:
    data = tar(
        directory("a", mode=0), file("a/b", uid=0), directory("a/c", mode=0), file("a/c/d"),
        entry(".wh.gone"), directory("o"), entry("o/.wh..wh..opq"), file("a/run", mode=0o4755),
    )  # fmt: skip

    def unpack_and_remove() -> None:
        (mine / "layer").mkdir()
        put(data, mine / "layer")
        assert stat.S_IMODE((mine / "layer/a").stat().st_mode) == 0
        assert is_whiteout(mine / "layer/gone")
        assert is_opaque(mine / "layer/o")
        remove_tree(mine / "layer")
        assert os.listdir(mine) == []

    with tempfile.TemporaryDirectory() as where:  # which others can reach
        mine = Path(where)
        os.chown(mine, NOBODY, NOBODY)
        assert as_user(NOBODY, unpack_and_remove) == ""


def as_user(user: int, check: Callable[[], None]) -> str:
    """Return what fails in a child process of this user."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(user)
            os.setuid(user)
            check()
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text


def test_devices_are_left_out_and_counted(root: Path) -> None:
    found = put(tar(entry("null", tarfile.CHRTYPE), entry("sda", tarfile.BLKTYPE), file("a")), root)
    assert (os.listdir(root), found.written.devices) == (["a"], 2)


def test_hard_links_between_deep_directories_hold(root: Path) -> None:
    """More directories than are kept open lie between link and target."""
    first, second = "/".join("a" * 60), "/".join("b" * 60)
    put(tar(file(f"{first}/x", b"1"), hard_link(f"{second}/y", f"{first}/x")), root)
    assert (root / second / "y").read_bytes() == b"1"


def test_limits_leave_a_reserve_on_the_disk(tmp_path: Path) -> None:
    found = os.statvfs(tmp_path)
    assert limits_for(tmp_path).bytes < found.f_bavail * found.f_frsize


def test_broken_archives_of_other_makers_are_named(root: Path) -> None:
    with pytest.raises(InvalidImage, match=r"^layer 1 of x is not a tar archive"):
        put(b"PK\x03\x04" + b"x" * 1000, root)
