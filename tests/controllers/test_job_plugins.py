"""Job plugins: changes of pods, requested objects, and arguments."""

import base64
import json
from typing import Any

import pytest

from hekla.api import wellknown
from hekla.controllers.job.plugins import JobPlugin, PodContext, known_plugins, plugins_of
from hekla.controllers.job.plugins.flags import FlagError, parse_flags
from hekla.controllers.job.plugins.plugin import containers, set_env
from hekla.controllers.job.plugins.pytorch import PyTorch
from hekla.controllers.job.pods import PodMaker
from hekla.units.objects import Object

from .builders import job, task


def made(of: Object, task_name: str, index: int = 0) -> Object:
    one = next(each for each in of["spec"]["tasks"] if each["name"] == task_name)
    return PodMaker(of).pod(one, index)


def env(pod: Object, container: int = 0) -> dict[str, Any]:
    items = pod["spec"]["containers"][container].get("env") or ()
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in items}


def objects(of: Object) -> dict[str, Object]:
    return {
        f"{each.resource.kind}/{each.body['metadata']['name']}": each.body
        for plugin in plugins_of(of)
        for each in plugin.objects(of)
    }


def test_all_plugins_of_the_api_are_registered() -> None:
    assert set(wellknown.JOB_PLUGINS) <= set(known_plugins())


def test_env_sets_the_index_in_every_container() -> None:
    of = job(plugins={"env": []})
    of["spec"]["tasks"][0]["template"]["spec"]["initContainers"] = [{"name": "first"}]
    pod = made(of, "worker", 1)
    assert env(pod) == {"VK_TASK_INDEX": "1", "VC_TASK_INDEX": "1"}
    assert len(pod["spec"]["initContainers"][0]["env"]) == 2


def test_a_template_is_not_changed_by_the_pods_made_from_it() -> None:
    of = job(plugins={"env": [], "svc": [], "ssh": []})
    before = json.dumps(of)
    made(of, "worker", 1)
    assert before == json.dumps(of)


def test_svc_names_hosts_and_publishes_them() -> None:
    of = job(tasks=[task("ps", 1), task("my-worker", 2)], plugins={"svc": []})
    pod = made(of, "my-worker", 1)
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-my-worker-1", "train")
    reference = {"configMapKeyRef": {"name": "train-svc", "key": "VC_MY_WORKER_HOSTS"}}
    assert reference == env(pod)["VC_MY_WORKER_HOSTS"]
    assert pod["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] == "/etc/volcano"
    found = objects(of)
    assert list(found) == ["ConfigMap/train-svc", "Service/train", "NetworkPolicy/train"]
    assert found["ConfigMap/train-svc"]["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "my_worker.host": "train-my-worker-0.train\ntrain-my-worker-1.train",
        "VC_MY_WORKER_HOSTS": "train-my-worker-0.train,train-my-worker-1.train",
        "VC_MY_WORKER_NUM": "2",
    }
    service = found["Service/train"]
    assert service["spec"]["clusterIP"] == "None"
    assert (service["spec"]["selector"]) == {
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "default",
    }
    assert service["metadata"]["ownerReferences"][0]["uid"] == "uid-train"


def test_svc_can_omit_network_policy_and_variables() -> None:
    arguments = ["--disable-network-policy", "--inject-hosts-env=false"]
    of = job(plugins={"svc": [*arguments, "--publish-not-ready-addresses=true"]})
    assert env(made(of, "worker")) == {}
    assert "NetworkPolicy/train" not in objects(of)
    assert objects(of)["Service/train"]["spec"]["publishNotReadyAddresses"]


def test_fixed_host_name_gives_one_address() -> None:
    of = job(plugins={"svc": []})
    of["spec"]["tasks"][0]["template"]["spec"]["hostname"] = "box"
    assert objects(of)["ConfigMap/train-svc"]["data"]["VC_WORKER_HOSTS"] == "box.train"


def test_ssh_mounts_keys_and_configures_all_hosts() -> None:
    of = job(plugins={"ssh": ["--ssh-port=2222"]})
    pod = made(of, "worker")
    (volume,) = pod["spec"]["volumes"]
    assert (volume["secret"]["secretName"], volume["secret"]["defaultMode"]) == ("train-ssh", 0o600)
    mounted = pod["spec"]["containers"][0]["volumeMounts"][0]
    assert (mounted["mountPath"], mounted["subPath"]) == ("/root/.ssh", ".ssh")
    config = base64.b64decode(objects(of)["Secret/train-ssh"]["data"]["config"]).decode()
    assert config.startswith("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n")
    assert "Host train-worker-1\n  HostName train-worker-1.train\n  Port 2222\n" in config


def test_ssh_generates_a_key_pair_once_or_uses_the_given_one() -> None:
    (managed,) = plugins_of(job(plugins={"ssh": []}))[0].objects(job())
    assert managed.make_once is not None
    data = managed.make_once()["data"]
    assert b"BEGIN RSA PRIVATE KEY" in base64.b64decode(data["id_rsa"])
    assert data["id_rsa.pub"] == data["authorized_keys"]
    given = job(plugins={"ssh": ["--ssh-private-key=a", "--ssh-public-key=b"]})
    (managed,) = plugins_of(given)[0].objects(given)
    assert managed.make_once is not None
    assert managed.make_once()["data"]["id_rsa"] == "YQ=="


def test_ssh_keys_outside_root_are_readable_and_an_invalid_port_is_22() -> None:
    of = job(plugins={"ssh": ["--ssh-key-file-path=/home/me/.ssh", "--ssh-port=99999"]})
    assert made(of, "worker")["spec"]["volumes"][0]["secret"]["defaultMode"] == 0o644
    config = base64.b64decode(objects(of)["Secret/train-ssh"]["data"]["config"]).decode()
    assert "Port 22\n" in config


def test_tensorflow_sets_tf_config_with_the_whole_cluster() -> None:
    of = job(tasks=[task("ps", 1), task("worker", 2)], plugins={"tensorflow": ["--port=3000"]})
    config = json.loads(env(made(of, "worker", 1))["TF_CONFIG"])
    assert config == {
        "cluster": {
            "ps": ["train-ps-0.train:3000"],
            "worker": ["train-worker-0.train:3000", "train-worker-1.train:3000"],
        },
        "task": {"type": "worker", "index": 1},
    }


def test_tensorflow_does_not_change_a_single_pod() -> None:
    assert env(made(job(tasks=[task("worker", 1)], plugins={"tensorflow": []}), "worker")) == {}


def test_pytorch_ranks_the_master_first() -> None:
    tasks = [task("master", 1), task("worker", 2), task("other", 1)]
    of = job(tasks=tasks, plugins={"pytorch": []})
    want = {"MASTER_ADDR": "train-master-0.train", "MASTER_PORT": "23456", "WORLD_SIZE": "3"}
    assert {**want, "RANK": "0"} == env(made(of, "master"))
    assert {**want, "RANK": "2"} == env(made(of, "worker", 1))
    assert env(made(of, "other")) == {}
    port = made(of, "worker")["spec"]["containers"][0]["ports"][0]
    assert port == {"name": "pytorchjob-port", "containerPort": 23456}


def test_pytorch_workers_can_wait_for_their_master() -> None:
    arguments = ["--wait-master-enabled", "--wait-master-timeout=9"]
    of = job(tasks=[task("master", 1), task("worker", 1)], plugins={"pytorch": arguments})
    (waiting,) = made(of, "worker")["spec"]["initContainers"]
    assert (waiting["name"], waiting["image"]) == ("wait-for-master", "busybox:1.36.1")
    assert "+ 9 " in waiting["command"][2]
    assert "initContainers" not in made(of, "master")["spec"]


def test_mpi_sets_the_hosts_in_the_master() -> None:
    of = job(tasks=[task("master", 1), task("worker", 2)], plugins={"mpi": []})
    hosts = "train-worker-0.train,train-worker-1.train"
    assert {"MPI_HOST": hosts} == env(made(of, "master"))
    assert env(made(of, "worker")) == {}
    port = made(of, "worker")["spec"]["containers"][0]["ports"][0]
    assert port == {"name": "mpijob-port", "containerPort": 22}


def ray_job(*arguments: str) -> Object:
    tasks = [task("head", 1), task("worker", 1)]
    of = job(tasks=tasks, plugins={"ray": list(arguments)})
    for one in tasks:
        one["template"]["spec"]["containers"][0]["name"] = one["name"]
    return of


def test_ray_starts_head_and_workers_as_one_cluster() -> None:
    of = ray_job("--dashboardPort=9000")
    head = made(of, "head")["spec"]["containers"][0]
    assert "ray start --head --block" in head["command"][2]
    assert "--dashboard-port=9000" in head["command"][2]
    assert [each["name"] for each in head["ports"]] == ["gcs", "dashboard", "client-server"]
    worker = made(of, "worker")["spec"]["containers"][0]
    assert worker["command"][2] == "ray start --block --address=train-head-0.train:6379"
    service = objects(of)["Service/train-head-svc"]
    assert [each["port"] for each in service["spec"]["ports"]] == [6379, 9000, 10001]


def test_ray_without_a_head_task_raises() -> None:
    with pytest.raises(ValueError, match="there is no task 'boss'"):
        made(ray_job("--head=boss"), "worker")


RANKS = {
    "the rank of a master is its index": ("master", 0, None, "0"),
    "the rank of a worker follows the masters": ("worker", 1, None, "2"),
    "RANK in the environment takes precedence": ("worker", 1, "7", "7"),
}


@pytest.mark.parametrize("case", RANKS)
def test_hcclrank_annotates_the_rank(case: str) -> None:
    name, index, rank, want_rank = RANKS[case]
    of = job(tasks=[task("master", 1), task("worker", 2)], plugins={"hcclrank": []})
    if rank is not None:
        for one in of["spec"]["tasks"]:
            set_env(one["template"]["spec"]["containers"], {"RANK": rank})
    assert want_rank == made(of, name, index)["metadata"]["annotations"]["hccl/rankIndex"]


def test_hcclrank_uses_the_rank_set_by_pytorch() -> None:
    tasks = [task("master", 1), task("worker", 2)]
    of = job(tasks=tasks, plugins={"hcclrank": [], "pytorch": []})
    assert made(of, "worker", 1)["metadata"]["annotations"]["hccl/rankIndex"] == "2"


def test_custom_plugin_is_a_class() -> None:
    class Greeting(JobPlugin, name="greeting"):
        text: str = "hello"
        loud: bool = False

        def on_pod(self, pod: Object, context: PodContext) -> None:
            said = self.text.upper() if self.loud else self.text
            set_env(containers(pod), {"GREETING": f"{said} {context.index}"})

    of = job(plugins={"greeting": ["--text", "hi", "-loud"]})
    assert env(made(of, "worker", 1)) == {"GREETING": "HI 1"}


FLAGS = {
    "one dash": (["-port=1"], {"port": 1}),
    "two dashes": (["--port=1"], {"port": 1}),
    "value as the next argument": (["--name", "x"], {"name": "x"}),
    "a bare boolean is true": (["--on", "--port=2"], {"on": True, "port": 2}),
    "a boolean's value needs the equals sign": (["--on", "false", "--port=2"], {"on": True}),
    "a boolean can be false": (["--on=F"], {"on": False}),
    "an equals sign in the value": (["--name=a=b"], {"name": "a=b"}),
    "nothing after two dashes": (["--", "--port=1"], {}),
}
KINDS = {"port": ("port", int), "name": ("name", str), "on": ("on", bool)}


@pytest.mark.parametrize("case", FLAGS)
def test_flags_are_parsed_as_in_go(case: str) -> None:
    arguments, want_values = FLAGS[case]
    assert want_values == dict(parse_flags(KINDS, arguments))


@pytest.mark.parametrize("wrong", [["--what=1"], ["--port=x"], ["--on=maybe"], ["--name"]])
def test_invalid_flag_is_named_in_the_error(wrong: list[str]) -> None:
    with pytest.raises(FlagError, match=wrong[0].lstrip("-").split("=")[0]):
        dict(parse_flags(KINDS, wrong))


def test_arguments_before_an_invalid_one_are_used() -> None:
    (plugin,) = plugins_of(job(plugins={"pytorch": ["--port=1", "--nonsense", "--master=m"]}))
    assert isinstance(plugin, PyTorch)
    assert (plugin.port, plugin.master) == (1, "master")
    assert "unknown flag '--nonsense'" in plugin.problem
