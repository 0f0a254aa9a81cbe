"""The audit of pinned dependencies against a file of advisories."""

from __future__ import annotations

import zipfile
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from tools import audit

from hekla.units.objects import Object


def _advisory(name: str, *events: Object, **fields: object) -> Object:
    affected = {
        "package": {"ecosystem": "PyPI", "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": "OSV-1", "summary": "a hole", "affected": [affected], **fields}


@pytest.mark.parametrize(
    ("events", "affected"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "0"}, {"fixed": "2.0"}], False),
        ([{"introduced": "0"}, {"fixed": "2.1"}], True),
        ([{"introduced": "2.0"}], True),
        ([{"introduced": "2.0.1"}], False),
        ([{"introduced": "0"}, {"last_affected": "2.0"}], True),
        ([{"introduced": "0"}, {"last_affected": "1.9"}], False),
        ([{"fixed": "1.0"}, {"introduced": "0"}, {"introduced": "1.5"}], True),
    ],
)
def test_range_of_an_advisory_decides(events: list[Object], affected: bool) -> None:
    lines = audit.findings([_advisory("Some_Package", *events)], {"some-package": "2.0"})
    assert bool(lines) == affected


def test_withdrawn_and_foreign_advisories_do_not_apply() -> None:
    hole = {"introduced": "0"}
    foreign = _advisory("some-package", hole)
    foreign["affected"][0]["package"]["ecosystem"] = "npm"
    known = [_advisory("some-package", hole, withdrawn="2026-01-01T00:00:00Z"), foreign]
    assert audit.findings(known, {"some-package": "2.0"}) == []


def test_audit_reads_a_zip_file_and_fails_on_a_finding(tmp_path: Path) -> None:
    versions = audit.pinned([audit.REQUIREMENTS / "run.txt"])
    assert {"msgspec", "uvicorn", "pyyaml", "numpy"} <= versions.keys()
    for name, code in (("msgspec", 1), ("not-installed", 0)):
        path = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(
                "OSV-1.json", msgspec.json.encode(_advisory(name, {"introduced": "0"}))
            )
        done = CliRunner().invoke(audit.main, ["--advisories", str(path)])
        assert done.exit_code == code, done.output
        assert ("msgspec" in done.output) == bool(code)


def test_list_of_packages_must_have_the_pinned_versions() -> None:
    sbom = {"components": [{"name": "A", "version": "1"}, {"name": "b", "version": "2"}]}
    assert audit.sbom_differences(sbom, {"a": "1", "b": "2"}) == []
    assert audit.sbom_differences(sbom, {"a": "1", "b": "3"})
    assert audit.sbom_differences(sbom, {"a": "1"})
    assert audit.sbom_differences(sbom, {"a": "1", "b": "2", "c": "1"})
