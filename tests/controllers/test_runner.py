"""The selection of controllers."""

import pytest

from hekla.controllers.informers import InformerFactory
from hekla.controllers.metrics import Metrics
from hekla.controllers.objects import Key
from hekla.controllers.reconciler import Reconciler
from hekla.controllers.runner import BUILDERS, selected
from hekla.kube.errors import Forbidden
from hekla.kube.recorder import EventRecorder

from .cluster import Cluster


def test_controllers_are_selected_by_name() -> None:
    assert list(BUILDERS) == selected(["*"]) == selected([])
    assert "gc-controller" not in selected(["*", "-gc-controller"])
    assert selected(["+job-controller"]) == ["job-controller"]
    with pytest.raises(ValueError, match="no controller 'jobs'"):
        selected(["jobs"])


async def test_a_namespace_that_is_being_deleted_is_no_error(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    class Creator(Reconciler):
        name = "creator"

        async def reconcile(self, key: Key) -> float | None:
            message = f"unable to create new content in namespace {key[0]} because it is being"
            raise Forbidden(403, "Forbidden", f"{message} terminated")

    metrics = Metrics()
    informers = InformerFactory(cluster.client, cluster.clock)
    creator = Creator(informers, EventRecorder(cluster.client, component="t"), metrics)
    assert await creator._reconcile_or_requeue(("gone", "x")) is None
    assert not [record for record in caplog.records if record.levelno > 10]
