"""Names of images are read as Docker and containerd read them."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.images.errors import InvalidReference
from hekla.images.reference import Archive, Reference, parse_reference, parse_source

DIGEST = "sha256:" + "a1" * 32

FULL_NAMES = {
    "ubuntu": "docker.io/library/ubuntu:latest",
    "ubuntu:24.04": "docker.io/library/ubuntu:24.04",
    "pytorch/pytorch:2.4": "docker.io/pytorch/pytorch:2.4",
    "docker.io/ubuntu": "docker.io/library/ubuntu:latest",
    "index.docker.io/library/ubuntu": "docker.io/library/ubuntu:latest",
    "localhost/x": "localhost/x:latest",
    "localhost:5000/x": "localhost:5000/x:latest",
    "host:5000/a/b/c:1": "host:5000/a/b/c:1",
    "[::1]:5000/x:1": "[::1]:5000/x:1",
    "nvcr.io/nvidia/pytorch:24.01-py3": "nvcr.io/nvidia/pytorch:24.01-py3",
    "UPPER/x": "UPPER/x:latest",  # upper case makes it a host, as in Docker
    "a__b/c-_d".replace("-_", "--"): "docker.io/a__b/c--d:latest",
    f"ubuntu@{DIGEST}": f"docker.io/library/ubuntu@{DIGEST}",
    f"ubuntu:24.04@{DIGEST}": f"docker.io/library/ubuntu:24.04@{DIGEST}",
}

INVALID = {
    "nothing": "",
    "upper case in the repository": "docker.io/Ubuntu",
    "an upper-case name alone": "Ubuntu",
    "an empty tag": "ubuntu:",
    "a tag of 129 characters": "ubuntu:" + "a" * 129,
    "a tag that starts with a dash": "ubuntu:-a",
    "an empty digest": "ubuntu@",
    "a short digest": "ubuntu@sha256:abc",
    "a digest in upper case": "ubuntu@" + DIGEST.upper(),
    "an unknown digest": "ubuntu@md5:" + "a" * 32,
    "two digests": f"ubuntu@{DIGEST}@{DIGEST}",
    "an image id": "a1" * 32,
    "three underscores": "a___b",
    "a double slash": "a//b",
    "a leading slash": "/a",
    "a trailing slash": "a/",
    "a path upwards": "docker.io/../x",
    "a space": "a b",
    "a line break at the end": "ubuntu\n",
    "a line break after the tag": "ubuntu:1\n",
    "a zero byte": "a\0b",
    "a URL": "https://docker.io/x",
    "a port that is no number": "host:port/x",
    "a name of more than 255 characters": "a/" * 130 + "a",
    "a very long text": "a" * 2000,
    "an option": "--help",
    "a letter beyond ASCII": "übuntu",
    "a digit beyond ASCII": "host:٣/x",
}


@pytest.mark.parametrize(("text", "want"), FULL_NAMES.items())
def test_short_names_get_registry_repository_and_tag(text: str, want: str) -> None:
    assert str(parse_reference(text)) == want


@pytest.mark.parametrize("text", INVALID.values(), ids=INVALID)
def test_invalid_names_are_refused_with_the_name(text: str) -> None:
    with pytest.raises(InvalidReference, match=r"^image .* is not a valid name: \S"):
        parse_reference(text)


def test_name_by_digest_has_no_tag() -> None:
    assert str(parse_reference("a/b:1").by_digest(DIGEST)) == f"docker.io/a/b@{DIGEST}"


def test_files_and_directories_are_sources_and_never_references() -> None:
    docker, oci = parse_source("docker-archive:/tmp/x.tar"), parse_source("oci:/srv/layout:v1")
    assert isinstance(docker, Archive)
    assert isinstance(oci, Archive)
    assert (str(docker.path), docker.name) == ("/tmp/x.tar", "")
    assert (str(oci.path), oci.name, str(oci)) == ("/srv/layout", "v1", "oci:/srv/layout:v1")
    assert isinstance(parse_source("ubuntu:1"), Reference)
    for text in ("docker-archive:/tmp/x.tar", "oci:/srv/layout"):
        with pytest.raises(InvalidReference):
            parse_reference(text)


@pytest.mark.parametrize("text", ["oci:", "docker-archive:", "oci-archive::name"])
def test_source_without_a_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidReference, match="there is no path"):
        parse_source(text)


WORD = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
REPOSITORY = st.lists(
    st.builds("".join, st.tuples(WORD, st.sampled_from(["", ".x", "_x", "__x", "--x"]))),
    min_size=1,
    max_size=4,
).map("/".join)
REGISTRY = st.sampled_from(["", "docker.io/", "localhost/", "localhost:5000/", "a.b.c:1/"])
TAG = st.sampled_from(["", ":1", ":v1.2-x_y", ":latest"])
AT = st.sampled_from(["", "@" + DIGEST, "@sha512:" + "0f" * 64])


@given(REGISTRY, REPOSITORY, TAG, AT)
def test_full_name_of_a_name_is_its_own_full_name(
    registry: str, repository: str, tag: str, at: str
) -> None:
    full = parse_reference(registry + repository + tag + at)
    assert parse_reference(str(full)) == full
    assert full.tag or full.digest
    assert "/" not in full.registry


@given(st.text(max_size=60) | st.text("aA0:/@.-_[]", max_size=40))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        full = parse_reference(text)
    except InvalidReference:
        return
    assert parse_reference(str(full)) == full
    assert not any(character.isspace() for character in str(full))
    assert ".." not in str(full).split("/")
