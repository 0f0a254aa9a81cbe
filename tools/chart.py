"""`python -m tools.chart` writes the generated files of the Helm chart and of `hekla install`.

- charts/hekla/crds, copies of the CRDs that are installed: helm warns about each symbolic link;
- charts/hekla/templates/webhooks.yaml, from the webhooks in `hekla.admission.webhooks`;
- src/hekla/cli/data/manifests.yaml, the chart rendered by helm, which `hekla install` ships.

Tests fail when a file is not current. helm is built from source if it is missing.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import yaml

from hekla.admission.webhooks import WebhookAddress, configurations
from hekla.api import crds
from hekla.cli.chart_values import RELEASE, RENDERED_WITH
from hekla.cli.release import MANIFESTS, NOT_SERVED
from hekla.units.objects import Object
from tools.kube.gobuild import ensure
from tools.kube.parts import HELM

CHART = Path(__file__).parents[1] / "charts" / "hekla"
CRDS = CHART / "crds"
WEBHOOKS = CHART / "templates" / "webhooks.yaml"
NAMESPACE = "volcano-system"
_HEADER = "# Rendered from charts/hekla by helm: `python -m tools.chart`. Do not edit.\n"
_NAMESPACE, _SERVICE = "hekla-namespace", "hekla-service"
_HEAD = "{{- /* Written by `python -m tools.chart` from hekla.admission.webhooks. */ -}}\n"
_SELECTOR = """\
  {{- with $.Values.custom.webhooks_namespace_selector_expressions }}
  namespaceSelector:
    matchExpressions:
      {{- toYaml . | nindent 6 }}
  {{- end }}
"""
_LABELS = '  labels:\n    {{- include "hekla.labels" . | nindent 4 }}\n'


def served_crds() -> dict[str, str]:
    """Return the files of crds/ and their text."""
    paths = (path for path in crds.manifests() if not path.name.startswith(NOT_SERVED))
    return {path.name: path.read_text() for path in paths}


def webhooks() -> str:
    """Return the text of templates/webhooks.yaml."""
    made = configurations(WebhookAddress(namespace=_NAMESPACE, service=_SERVICE), b"")
    names = {
        which: [body["metadata"]["name"] for body in made if body["kind"].lower().startswith(which)]
        for which in ("mutating", "validating")
    }
    defines = "".join(
        f'{{{{- define "hekla.{which}" -}}}}\n{_yaml(listed)}{{{{- end -}}}}\n'
        for which, listed in names.items()
    )
    body = "---\n".join(_template(each) for each in made)
    return f"{_HEAD}{defines}{{{{- if .Values.custom.admission_enable }}}}\n{body}{{{{- end }}}}\n"


def _template(body: Object) -> str:
    (webhook,) = body["webhooks"]
    # The admission service sets its own.
    del webhook["clientConfig"]["caBundle"]
    text = _yaml(body).replace(f"  name: {body['metadata']['name']}\n", "\\g", 1)
    text = text.replace("\\g", f"  name: {body['metadata']['name']}\n{_LABELS}", 1)
    text = text.replace(_NAMESPACE, "{{ $.Release.Namespace }}")
    text = text.replace(_SERVICE, "{{ $.Release.Name }}-admission-service")
    return text + _SELECTOR


def _yaml(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, width=200))


def helm_template(program: Path, values: Object, *, include_crds: bool = False) -> str:
    """Return what `helm template` renders with these values."""
    with tempfile.TemporaryDirectory() as home:
        file = Path(home) / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        command: list[str | Path] = [program, "template", RELEASE, CHART, "--namespace", NAMESPACE]
        command += ["--kube-version", "v1.36.1", "--values", file]
        done = subprocess.run(
            [*command, "--include-crds"] if include_crds else command,
            env={"HOME": home, "PATH": ""},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"helm template: {done.stderr}")
    return done.stdout


def manifests(program: Path) -> str:
    """Return the text of src/hekla/cli/data/manifests.yaml."""
    return _HEADER + helm_template(program, RENDERED_WITH)


if __name__ == "__main__":
    wanted = served_crds()
    for path in CRDS.iterdir():
        path.unlink()
    for name, text in wanted.items():
        (CRDS / name).write_text(text)
    WEBHOOKS.write_text(webhooks())
    MANIFESTS.parent.mkdir(exist_ok=True)
    MANIFESTS.write_text(manifests(ensure(HELM)))
