"""kube-scheduler with the Coscheduling plugin, built as `tools.kube` builds its programs.

Note: its PodGroups need only their CRD to be scheduled; a controller of the same project writes
their status.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tools.kube.gobuild import Part

_MODULE = "sigs.k8s.io/scheduler-plugins"
SCHEDULER = Part(
    "coscheduling", Path(__file__).with_name("coscheduling"), _MODULE, f"{_MODULE}/cmd/scheduler"
)
CONF = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: "{kubeconfig}", qps: 5000, burst: 5000}}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {{enabled: [{{name: Coscheduling}}]}}
    queueSort: {{enabled: [{{name: Coscheduling}}], disabled: [{{name: "*"}}]}}
  pluginConfig:
  - name: Coscheduling
    args: {{permitWaitingTimeSeconds: 10}}
"""
"""The documented configuration, without rate limits."""


def crds() -> list[dict[str, Any]]:
    """Return the CRD of its PodGroup from its Go module."""
    words = ["go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", _MODULE]
    done = subprocess.run(words, cwd=SCHEDULER.folder, capture_output=True, text=True, check=True)
    bases = Path(done.stdout.strip()) / "config" / "crd" / "bases"
    return [yaml.load((bases / "scheduling.x-k8s.io_podgroups.yaml").read_text(), yaml.CSafeLoader)]
