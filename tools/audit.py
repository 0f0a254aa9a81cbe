"""`python -m tools.audit`: known vulnerabilities of the pinned dependencies, without internet.

`--advisories FILE` is a zip file or a directory of advisories in the OSV format. `--sbom FILE`
checks that a CycloneDX list has exactly the pinned versions.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from hekla.units.objects import Object

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
_PIN = re.compile(r"^[A-Za-z0-9][^\s;\\]*==[^\s;\\]+(?:\s*;[^\\\n]*)?", re.MULTILINE)


def pinned(paths: Iterable[Path], *, here_only: bool = False) -> dict[str, str]:
    """Return the versions in requirements files, by canonical name.

    `here_only` leaves out what another platform or Python needs.
    """
    found: dict[str, str] = {}
    for path in paths:
        for match in _PIN.finditer(path.read_text()):
            requirement = Requirement(match[0].strip())
            if here_only and requirement.marker and not requirement.marker.evaluate():
                continue
            (specifier,) = requirement.specifier
            found[canonicalize_name(requirement.name)] = specifier.version
    return found


def advisories(path: Path) -> Iterator[Object]:
    """Yield the advisories of a zip file or directory."""
    if path.is_dir():
        for file in sorted(path.rglob("*.json")):
            yield msgspec.json.decode(file.read_bytes())
        return
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield msgspec.json.decode(archive.read(name))


def applies(affected: Object, version: str) -> bool:
    """Return whether an `affected` entry of an advisory includes a version."""
    if version in (affected.get("versions") or ()):
        return True
    return any(
        _in_range(entry.get("events") or (), Version(version))
        for entry in affected.get("ranges") or ()
        if entry.get("type") == "ECOSYSTEM"
    )


def _in_range(events: Iterable[Object], version: Version) -> bool:
    """Evaluate the events of a range, in the order of their versions."""
    is_affected = False
    for event in sorted(events, key=_event_order):
        ((kind, text),) = event.items()
        at = _version(text)
        if kind == "introduced" and at <= version:
            is_affected = True
        elif (kind == "fixed" and at <= version) or (kind == "last_affected" and at < version):
            is_affected = False
    return is_affected


def _event_order(event: Object) -> tuple[Version, bool]:
    ((kind, text),) = event.items()
    return _version(text), kind == "introduced"


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def findings(known: Iterable[Object], versions: dict[str, str]) -> list[str]:
    """Return one line for each advisory that applies to a pinned version."""
    lines = []
    for advisory in known:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected") or ():
            package = affected.get("package") or {}
            name = canonicalize_name(str(package.get("name", "")))
            if package.get("ecosystem") != "PyPI" or name not in versions:
                continue
            if applies(affected, versions[name]):
                lines.append(
                    f"{name} {versions[name]}: {advisory['id']} {advisory.get('summary', '')}"
                    f" (fixed in {_fixed(affected) or 'no version yet'})"
                )
    return sorted(set(lines))


def _fixed(affected: Object) -> str:
    fixed = [
        event["fixed"]
        for entry in affected.get("ranges") or ()
        if entry.get("type") == "ECOSYSTEM"
        for event in entry.get("events") or ()
        if "fixed" in event
    ]
    return ", ".join(fixed)


def sbom_differences(sbom: Object, versions: dict[str, str]) -> list[str]:
    """Return how the components of a CycloneDX list differ from the pinned versions."""
    listed: dict[str, str] = {
        canonicalize_name(component["name"]): component.get("version", "")
        for component in sbom.get("components") or ()
    }
    return [
        f"{name}: {listed.get(name, 'not listed')} in the list, {versions.get(name, 'none')} pinned"
        for name in sorted(listed.keys() | versions.keys())
        if listed.get(name) != versions.get(name)
    ]


@click.command()
@click.option("--advisories", "known", type=click.Path(path_type=Path, exists=True))
@click.option("--sbom", type=click.Path(path_type=Path, exists=True))
def main(known: Path | None, sbom: Path | None) -> None:
    """Check the pinned dependencies."""
    if known is None and sbom is None:
        raise click.UsageError("give --advisories FILE or --sbom FILE")
    wrong: list[str] = []
    if sbom is not None:
        run = pinned([REQUIREMENTS / "run.txt"], here_only=True)
        wrong += sbom_differences(msgspec.json.decode(sbom.read_bytes()), run)
        click.echo(f"{sbom}: {len(run)} packages")
    if known is not None:
        versions = pinned(sorted(REQUIREMENTS.glob("*.txt")))
        wrong += findings(advisories(known), versions)
        click.echo(f"{len(versions)} pinned packages, {len(wrong)} advisories apply")
    for line in wrong:
        click.echo(line, err=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
