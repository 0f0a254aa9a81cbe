"""The plugins env, svc and pytorch: names that CoreDNS resolves, and connections between pods."""

from __future__ import annotations

import pytest

from hekla.kube.sync_client import SyncClient
from tests.realkube.kubelet.jobs import finished, job, logs, submit, task

pytestmark = pytest.mark.kubelet

SERVER = "while true; do echo hello from $HOSTNAME | nc -l -p 7000; done"
CLIENT = """
name=$(head -1 /etc/volcano/server.host)
echo $name
until nc -w 2 $name 7000 > answer 2> /dev/null && test -s answer; do sleep 0.2; done
cat answer
"""


def test_svc_and_env_give_names_that_resolve_and_numbers(
    client: SyncClient, namespace: str
) -> None:
    submit(
        client,
        namespace,
        job(
            "named",
            task("server", script=SERVER),
            task(
                "client",
                replicas=2,
                script="cd /tmp; echo $VC_TASK_INDEX $VC_SERVER_HOSTS" + CLIENT,
                policies=[{"event": "TaskCompleted", "action": "CompleteJob"}],
            ),
            plugins={"env": [], "svc": []},
        ),
    )
    finished(client, namespace, "named")
    for number in range(2):
        assert logs(client, namespace, f"named-client-{number}").splitlines() == [
            f"{number} named-server-0.named",
            "named-server-0.named",
            "hello from named-server-0",
        ]


def test_names_are_those_of_a_headless_service(client: SyncClient, namespace: str) -> None:
    script = f"until nslookup $HOSTNAME.dns.{namespace}.svc.cluster.local; do sleep 0.2; done"
    submit(
        client,
        namespace,
        job("dns", task(replicas=2, script=script), plugins={"svc": []}),
    )
    finished(client, namespace, "dns")
    assert f"dns-worker-1.dns.{namespace}.svc.cluster.local" in logs(
        client, namespace, "dns-worker-1"
    )


MASTER = """
test $RANK = 0
for worker in 1 2; do nc -l -p $MASTER_PORT; done
"""
WORKER = """
until echo rank $RANK of $WORLD_SIZE | nc -w 2 $MASTER_ADDR $MASTER_PORT; do sleep 0.2; done
"""


def test_pytorch_workers_reach_their_master(client: SyncClient, namespace: str) -> None:
    submit(
        client,
        namespace,
        job(
            "ddp",
            task("master", script=MASTER),
            task("worker", replicas=2, script=WORKER),
            plugins={"pytorch": ["--master=master", "--worker=worker", "--port=23456"]},
        ),
    )
    finished(client, namespace, "ddp")
    told = sorted(logs(client, namespace, "ddp-master-0").splitlines())
    assert told == ["rank 1 of 3", "rank 2 of 3"]
