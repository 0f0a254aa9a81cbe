"""A package to install without an index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def make_wheel(directory: Path, name: str, version: str) -> Path:
    """Write a wheel whose module `name` has a `version`."""
    directory.mkdir(exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version!r}\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", tag)
        wheel.writestr(f"{info}/RECORD", "")
    return path


def requirements(directory: Path, *lines: str) -> Path:
    """Write a requirements file for the packages greeting 1.0 and 2.0, and no index."""
    for version in ("1.0", "2.0"):
        make_wheel(directory / "links", "greeting", version)
    path = directory / "requirements.txt"
    links = f"--find-links {directory / 'links'}"
    path.write_text("\n".join(["--no-index", links, *lines, ""]))
    return path
