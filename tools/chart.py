"""`python -m tools.chart` writes the parts of charts/hekla that follow from hekla's code.

The webhooks are defined once, in `hekla.admission.webhooks`; the chart has to know them to make and
remove them. A test fails when the file is not what this writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hekla.admission.webhooks import Reach, configurations

WEBHOOKS = Path(__file__).parents[1] / "charts" / "hekla" / "templates" / "webhooks.yaml"
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


def webhooks() -> str:
    """The text of templates/webhooks.yaml."""
    made = configurations(Reach(namespace=_NAMESPACE, service=_SERVICE), b"")
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


def _template(body: dict[str, Any]) -> str:
    (webhook,) = body["webhooks"]
    # The service puts its own in, and keeps it in force.
    del webhook["clientConfig"]["caBundle"]
    text = _yaml(body).replace(f"  name: {body['metadata']['name']}\n", "\\g", 1)
    text = text.replace("\\g", f"  name: {body['metadata']['name']}\n{_LABELS}", 1)
    text = text.replace(_NAMESPACE, "{{ $.Release.Namespace }}")
    text = text.replace(_SERVICE, "{{ $.Release.Name }}-admission-service")
    return text + _SELECTOR


def _yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, width=200))


if __name__ == "__main__":
    WEBHOOKS.write_text(webhooks())
