"""`hekla run`: what it reports before it starts a cluster."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from hekla.cli import run as module
from hekla.cli.main import main

MISSPELT = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a}
spec:
  minAvailabel: 1
  tasks: []
"""


def test_a_misspelt_field_is_warned_about_with_the_closest_name(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MISSPELT)
    with mock.patch.object(module, "running_pid", side_effect=RuntimeError("stop here")):
        result = CliRunner().invoke(main, ["run", str(file)])
    assert "spec.minAvailabel: unknown field" in result.output
    assert "did you mean 'minAvailable'?" in result.output


def test_a_correct_manifest_has_no_warning(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MISSPELT.replace("minAvailabel", "minAvailable"))
    with mock.patch.object(module, "running_pid", side_effect=RuntimeError("stop here")):
        result = CliRunner().invoke(main, ["run", str(file)])
    assert "Warning" not in result.output
    with pytest.raises(RuntimeError, match="stop here"):
        raise result.exception or AssertionError
