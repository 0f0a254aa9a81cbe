"""Images are pulled through skopeo, from a real registry and from one that lies."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from hekla.images.documents import OCI_MANIFEST, Platform
from hekla.images.errors import (
    DigestMismatch,
    DiskFull,
    ImageError,
    ImageNotFound,
    ImagePullError,
    InvalidImage,
    NoSuchPlatform,
    RegistryUnavailable,
    ToolMissing,
    Unauthorized,
)
from hekla.images.reference import Reference, parse_reference
from hekla.images.skopeo import _error
from hekla.images.store import ImageStore
from hekla.images.transfer import Credentials, Puller, is_insecure
from tests.clean_processes import exit_code, start
from tests.images.builders import descriptor, directory, file, image, index, sha256, tar
from tests.images.registry import LyingRegistry, RealRegistry
from tests.images.stores import files_of

BASE = tar(directory("bin"), file("bin/sh", os.urandom(50_000)))
ONE, TWO = tar(file("one", b"1")), tar(file("two", b"2"))
AMD64 = Platform("amd64", "linux")
NOTHING: dict[str, list[str]] = {"blobs": [], "layers": [], "ingest": [], "locks": []}


def puller(
    store: ImageStore, skopeo: str, timeout_s: float = 600.0, stall_s: float = 300.0
) -> Puller:
    return Puller(store, program=skopeo, machine=AMD64, timeout_s=timeout_s, stall_s=stall_s)


# A real registry


async def test_image_is_pulled_from_a_registry(
    real: RealRegistry, live: ImageStore, skopeo: str
) -> None:
    built = image(BASE, ONE, config={"Entrypoint": ["/init"], "User": "1000"})
    name = real.push("team/x:1", built)
    seen: list[tuple[int, int]] = []
    found = await puller(live, skopeo).pull(name, progress=lambda *at: seen.append(at))
    top, bottom = live.lower_directories(found)
    assert (top / "one").read_bytes() == b"1"
    assert (bottom / "bin/sh").stat().st_size == 50_000
    assert (found.config.entrypoint, found.config.user) == (("/init",), "1000")
    assert found.digest == built.digest
    assert live.find(str(name)) == live.find(str(name.by_digest(built.digest))) == found
    assert live.document(found.digest) == built.manifest
    assert seen[-1][0] == seen[-1][1] > 50_000
    assert files_of(live)["ingest"] == files_of(live)["locks"] == []


async def test_image_is_pulled_by_digest(real: RealRegistry, live: ImageStore, skopeo: str) -> None:
    built = image(BASE, ONE)
    name = real.push("team/by-digest:1", built)
    both = parse_reference(f"{name}@{built.digest}")
    found = await puller(live, skopeo).pull(both)
    assert live.find(str(both)) == found
    with pytest.raises(ImageNotFound):
        await puller(live, skopeo).pull(name.by_digest("sha256:" + "0" * 64))


async def test_tag_that_moved_gets_the_new_image(
    real: RealRegistry, live: ImageStore, skopeo: str
) -> None:
    name = real.push("team/moving:1", image(BASE, ONE))
    first = await puller(live, skopeo).pull(name)
    real.push("team/moving:1", image(BASE, TWO))
    second = await puller(live, skopeo).pull(name)
    assert live.find(str(name)) == second != first


async def test_missing_images_of_a_real_registry_are_named(
    real: RealRegistry, live: ImageStore, skopeo: str
) -> None:
    for name in ("team/none:1", "nothing/at/all:2"):
        reference = parse_reference(f"{real.address}/{name}")
        with pytest.raises(ImageNotFound, match="check the name and the tag"):
            await puller(live, skopeo).pull(reference)


# Sharing


async def test_layers_that_are_here_are_not_fetched_again(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    first, second = lying.put("1", image(BASE, ONE)), lying.put("2", image(BASE, TWO))
    await puller(live, skopeo).pull(first)
    lying.requests.clear()
    seen: list[tuple[int, int]] = []
    found = await puller(live, skopeo).pull(second, progress=lambda *at: seen.append(at))
    assert f"blobs/{image(BASE).layer_digests[0]}" not in lying.requests
    assert seen[-1][1] < 1000
    assert (live.lower_directories(found)[1] / "bin/sh").stat().st_size == 50_000


async def test_two_pulls_of_one_image_fetch_it_once(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    name = lying.put("1", image(BASE, ONE))
    pulls = puller(live, skopeo)
    found = await asyncio.gather(*(pulls.pull(name) for _ in range(3)))
    assert len({each.digest for each in found}) == 1
    blobs = [path for path in lying.requests if path.startswith("blobs/")]
    config = f"blobs/{found[0].config_digest}"
    assert {path: blobs.count(path) for path in blobs if path != config} == {
        path: 1 for path in set(blobs) - {config}
    }


async def test_pulled_image_is_pinned_for_its_container(
    lying: LyingRegistry, where: Path, skopeo: str
) -> None:
    store = ImageStore(where, limit_bytes=0)
    one, two = lying.put("1", image(BASE, ONE)), lying.put("2", image(BASE, TWO))
    pulls = puller(store, skopeo)
    for holder in ("container-1", "container-2"):  # fetched, then known
        first = await pulls.pull(one, holder=holder)
    assert set(store.pins()) == {"container-1", "container-2"}
    second = await pulls.pull(two)
    assert (store.find(str(one)), store.find(str(two))) == (first, second)
    store.collect()
    assert (store.find(str(one)), store.find(str(two))) == (first, None)
    store.close()


# Indexes


async def test_index_gives_the_image_of_this_machine(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    mine, other = image(BASE, ONE), image(BASE, TWO, architecture="arm64")
    listed = index((other, "arm64"), (mine, "amd64"))
    name = lying.put("1", mine, listed)
    found = await puller(live, skopeo).pull(name)
    assert found.digest == mine.digest
    for digest in (sha256(listed), mine.digest):
        assert live.find(str(name.by_digest(digest))) == found


async def test_image_for_other_machines_is_refused(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    other = image(BASE, architecture="arm64")
    with pytest.raises(NoSuchPlatform, match="it has linux/arm64"):
        await puller(live, skopeo).pull(lying.put("1", other, index((other, "arm64"))))
    with pytest.raises(NoSuchPlatform, match="built for linux/arm64"):
        await puller(live, skopeo).pull(lying.put("2", other))
    assert files_of(live) == NOTHING


async def test_indexes_without_end_are_refused(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    inner = image(BASE).manifest
    kind = "application/vnd.oci.image.index.v1+json"
    for _ in range(6):
        lying.answers[f"manifests/{sha256(inner)}"] = inner
        media_type = OCI_MANIFEST if b'"layers"' in inner else kind
        entries = [descriptor(inner, media_type)]
        inner = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
    lying.answers["manifests/1"] = inner
    with pytest.raises(InvalidImage, match="more than 4 deep"):
        await puller(live, skopeo).pull(lying.name("1"))


# Credentials


async def test_registry_with_a_login_wants_the_right_one(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    name, lying.login = lying.put("1", image(BASE)), "anna:secret-of-anna"
    for login in (None, Credentials("anna", "wrong-secret")):
        with pytest.raises(Unauthorized, match="pull secret") as caught:
            await puller(live, skopeo).pull(name, credentials=login)
        assert "wrong-secret" not in str(caught.value)
    right = Credentials("anna", "secret-of-anna")
    assert await puller(live, skopeo).pull(name, credentials=right)
    assert "secret-of-anna" not in repr(right)
    # Also an image that is here is not for everybody.
    with pytest.raises(Unauthorized):
        await puller(live, skopeo).pull(name)


async def test_credentials_are_in_a_private_file_and_not_in_the_command(
    live: ImageStore, tmp_path: Path
) -> None:
    fake = tmp_path / "skopeo"
    fake.write_text(
        '#!/bin/sh\necho "$@" >>"$0.words"\n'
        'for word; do case "$word" in */auth.json) stat -c %a "$word"; cat "$word";; esac; done '
        '>>"$0.auth"\necho unauthorized >&2; exit 1\n'
    )
    fake.chmod(0o755)
    with pytest.raises(Unauthorized):
        await puller(live, str(fake)).pull(
            parse_reference("nvcr.io/x"), credentials=Credentials("anna", "hush")
        )
    words, written = recorded(fake)
    assert "hush" not in words
    assert "tls-verify" not in words
    mode, auth = written.split("\n", 1)
    assert (mode, list(json.loads(auth)["auths"])) == ("600", ["nvcr.io"])
    assert files_of(live) == NOTHING


def recorded(fake: Path) -> tuple[str, str]:
    return Path(f"{fake}.words").read_text(), Path(f"{fake}.auth").read_text()


INSECURE = {
    "localhost": True,
    "localhost:5000": True,
    "127.0.0.1:5000": True,
    "127.9.9.9": True,
    "[::1]:5000": True,
    "mine.example": True,
    "mine.example:5000": True,
    "other.example:5000": False,
    "10.0.0.1:5000": False,
    "localhost.example": False,
    "127.0.0.1.example:80": False,
    "docker.io": False,
}


@pytest.mark.parametrize(("registry", "want"), INSECURE.items())
def test_plain_http_is_for_loopback_and_listed_registries(registry: str, want: bool) -> None:
    assert is_insecure(registry, {"mine.example"}) is want


# Registries that lie, stall or die


async def test_lies_are_found_and_nothing_stays(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    built = image(BASE, ONE)
    layer = built.layer_digests[0]
    truth = built.blobs[layer]
    for lie in (truth[:-10], truth[:100] + bytes(10) + truth[110:], truth + b"more", b""):
        name = lying.put("1", built)
        lying.answers[f"blobs/{layer}"] = lie
        with pytest.raises(ImageError, match=r"cannot be pulled|has the digest|instead of"):
            await puller(live, skopeo).pull(name)
        assert files_of(live) == NOTHING


async def test_manifest_with_another_digest_is_refused(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    right, wrong = image(BASE, ONE), image(BASE, TWO)
    name = lying.put("1", right).by_digest(right.digest)
    lying.answers[f"manifests/{right.digest}"] = wrong.manifest
    lying.put("2", wrong)
    with pytest.raises((DigestMismatch, ImagePullError)):
        await puller(live, skopeo).pull(name)
    assert files_of(live) == NOTHING


async def test_blob_without_an_end_is_cut_off(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    built = image(BASE, ONE)
    lying.endless.add(f"blobs/{built.layer_digests[0]}")
    with pytest.raises(InvalidImage, match="sends more than"):
        await puller(live, skopeo).pull(lying.put("1", built))
    assert files_of(live) == NOTHING


async def test_image_larger_than_the_disk_is_not_even_fetched(
    lying: LyingRegistry, live: ImageStore, skopeo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hekla.images.layers.RESERVED_BYTES", 1 << 60)
    lying.requests.clear()
    built = image(BASE, ONE)
    with pytest.raises(DiskFull, match="the space that is left"):
        await puller(live, skopeo).pull(lying.put("1", built))
    assert f"blobs/{built.layer_digests[0]}" not in lying.requests


async def test_registry_that_stalls_is_given_up(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    built = image(BASE, ONE)
    lying.stalled.add(f"blobs/{built.layer_digests[0]}")
    with pytest.raises(RegistryUnavailable, match="has sent nothing for"):
        await puller(live, skopeo, stall_s=0.5).pull(lying.put("1", built))
    with pytest.raises(RegistryUnavailable, match="was not there after"):
        await puller(live, skopeo, timeout_s=0.5).pull(lying.put("1", built))
    assert files_of(live) == NOTHING


async def test_cancelled_pull_ends_its_process_and_leaves_nothing(
    lying: LyingRegistry, live: ImageStore, skopeo: str
) -> None:
    built = image(BASE, ONE)
    lying.stalled.add(f"blobs/{built.layer_digests[0]}")
    started = asyncio.Event()
    task = asyncio.create_task(
        puller(live, skopeo).pull(lying.put("1", built), progress=lambda *_: started.set())
    )
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert files_of(live) == NOTHING


def pull_and_die(where: Path, skopeo: str, name: Reference) -> None:
    pulls = puller(ImageStore(where), skopeo)
    asyncio.run(pulls.pull(name, progress=lambda *_: os.kill(os.getpid(), 9)))


def test_pull_that_is_killed_leaves_nothing_at_the_next_start(
    lying: LyingRegistry, where: Path, skopeo: str
) -> None:
    """Its skopeo lives on for a while, and finds its directory gone."""
    built = image(BASE, ONE)
    lying.stalled.add(f"blobs/{built.layer_digests[0]}")
    name = lying.put("1", built)
    assert exit_code(start(pull_and_die, where, skopeo, name)) == -9
    store = ImageStore(where)
    assert files_of(store) == NOTHING
    lying.hold.set()
    lying.stalled.clear()
    assert asyncio.run(puller(store, skopeo).pull(name)).digest == built.digest
    store.close()


async def test_registry_that_does_not_answer_is_unavailable(live: ImageStore, skopeo: str) -> None:
    with pytest.raises(RegistryUnavailable, match=r"127\.0\.0\.1:1/x:latest cannot be pulled"):
        await puller(live, skopeo).pull(parse_reference("127.0.0.1:1/x"))


async def test_missing_skopeo_is_named_with_its_package(live: ImageStore) -> None:
    with pytest.raises(ToolMissing, match="apt-get install skopeo"):
        await puller(live, "no-such-skopeo").pull(parse_reference("ubuntu"))


MESSAGES = {
    "manifest unknown": ImageNotFound,
    "errors: denied: requested access to the resource is denied": Unauthorized,
    "unable to retrieve auth token: invalid username/password: unauthorized": Unauthorized,
    "toomanyrequests: You have reached your pull rate limit": RegistryUnavailable,
    "x509: certificate signed by unknown authority": RegistryUnavailable,
    "http: server gave HTTP response to HTTPS client": RegistryUnavailable,
    "dial tcp: lookup x: no such host": RegistryUnavailable,
    "received unexpected HTTP status: 503 Service Unavailable": RegistryUnavailable,
    "writing blob: write /x: no space left on device": DiskFull,
    "Digest did not match, expected sha256:a, got sha256:b": DigestMismatch,
    "something new": ImagePullError,
    "": ImagePullError,
}  # fmt: skip


@pytest.mark.parametrize(("message", "want"), MESSAGES.items())
def test_messages_of_skopeo_have_types(message: str, want: type[ImageError]) -> None:
    line = f'time="2026-11-19T04:27:09Z" level=fatal msg="{message}"\n'
    found = _error(line, parse_reference("x"))
    assert type(found) is want
    assert "docker.io/library/x:latest cannot be pulled" in str(found)


def test_names_and_digests_are_no_reasons() -> None:
    name = parse_reference("x.example/unauthorized/connection-refused:1")
    message = f'msg="reading manifest of {name.name}@sha256:{"503" * 20}: something new"'
    assert type(_error(message, name)) is ImagePullError


def test_messages_show_no_signed_addresses_and_have_a_bound() -> None:
    line = 'msg="Get \\"https://s3/x?X-Amz-Signature=abc\\": dial tcp ' + "y" * 9999 + '"'
    found = str(_error(line, parse_reference("x")))
    assert "abc" not in found
    assert len(found) < 1000


def test_store_and_its_scratch_files_are_private(store: ImageStore) -> None:
    with store.ingest() as ingest:
        assert stat.S_IMODE(ingest.path.stat().st_mode) == 0o700
