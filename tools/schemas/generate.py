"""Write the schema data of hekla.api: `python -m tools.schemas.generate`, or `--check` to compare.

Sources are the published OpenAPI document in the Go module k8s.io/kubernetes, the struct tags of
its staging modules, and the tables in this directory. Equal inputs give equal bytes, so a diff
shows what a new Kubernetes version changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tools.schemas import kubernetes, protobuf, volcano

SOURCE = Path(__file__).parents[2] / "src" / "hekla"
API = SOURCE / "api"


def module_dir(module: str, version: str) -> Path:
    """Return the folder of a Go module, downloaded on first use."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"cannot get {module}@{version}: {done.stderr or done.stdout}")
    return Path(json.loads(done.stdout)["Dir"])


def outputs() -> dict[Path, str]:
    """Return every generated file with its text."""
    spec_dir = module_dir(kubernetes.MODULE, kubernetes.VERSION) / "api" / "openapi-spec"
    definitions = kubernetes.compact_definitions(spec_dir)
    crds = volcano.crds(definitions)
    modules = {name: module_dir(name, protobuf.STAGING) for name in protobuf.MODULES}
    numbers = SOURCE / "apiserver" / "data" / "protobuf.json"
    files = {
        numbers: one_line_each(protobuf.messages(modules)),
        API / "data" / "kubernetes.json": one_line_each(definitions),
        # The same CRDs twice: YAML for users and `kubectl apply`, JSON because parsing the YAML
        # would dominate the start-up time of the server.
        API / "data" / "crds.json": one_line_each(crds),
    }
    for name, crd in crds.items():
        files[API / "crds" / f"{name}.yaml"] = as_yaml(crd)
    return files


def one_line_each(entries: dict[str, Any]) -> str:
    """A JSON object with one entry per line: small, and a diff names the definition."""
    lines = (f"{json.dumps(k)}:{_dense(v)}" for k, v in entries.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


class _NoAliases(yaml.CSafeDumper):
    """Writes shared parts in full instead of anchors such as `&id001`."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(document: dict[str, Any]) -> str:
    text: str = yaml.dump(document, Dumper=_NoAliases, width=100, allow_unicode=True)
    return "---\n" + text


def _dense(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only report stale files")
    check = parser.parse_args().check
    stale = []
    for path, text in outputs().items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in stale:
        print(f"{'stale' if check else 'wrote'}: {path}", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
