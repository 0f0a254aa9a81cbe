"""volcano-scheduler.conf: valid configurations, and errors with line and reason."""

from __future__ import annotations

import pytest

from hekla.scheduler.errors import ConfigError
from hekla.scheduler.framework import config
from hekla.scheduler.framework.registry import Registry
from hekla.scheduler.plugins import builtin
from hekla.scheduler.plugins.binpack import Binpack
from hekla.scheduler.plugins.gang import Gang
from hekla.scheduler.plugins.sla import Sla

BINPACK = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.cpu: 1
      binpack.memory: 1
      binpack.resources: nvidia.com/gpu
      binpack.resources.nvidia.com/gpu: 2
"""

NUMA = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: numa-aware
    arguments:
      weight: 2
"""


def names(text: str) -> list[list[str]]:
    return [[o.plugin.name for o in tier] for tier in config.parse(text, builtin()).tiers]


def test_the_default_is_the_one_that_volcanos_chart_installs() -> None:
    parsed = config.default(builtin())
    assert parsed.actions == ("enqueue", "allocate", "backfill")
    assert names(config.DEFAULT) == [
        ["priority", "gang", "conformance"],
        ["overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"],
    ]
    assert parsed.warnings == ()


def test_arguments_reach_their_plugin() -> None:
    parsed = config.parse(BINPACK, builtin())
    plugin = parsed.tiers[1][3].make()
    assert isinstance(plugin, Binpack)
    assert plugin.weight == 10
    assert plugin._weights == {"cpu": 1, "memory": 1, "nvidia.com/gpu": 2}


def test_a_plugin_of_volcano_that_is_not_registered_is_skipped_with_a_warning() -> None:
    parsed = config.parse(NUMA, Registry((Gang,)))
    assert [[o.plugin.name for o in tier] for tier in parsed.tiers] == [["gang"]]
    assert parsed.warnings == ("line 5: plugin 'numa-aware' is not installed and is skipped",)


def test_an_unknown_argument_is_reported_with_the_closest_name() -> None:
    text = BINPACK.replace("binpack.memory: 1", "binpack.memry: 1")
    (warning,) = config.parse(text, builtin()).warnings
    assert warning == (
        "line 12: plugin 'binpack' does not know the argument 'binpack.memry' "
        "(did you mean 'binpack.memory'?); it has no effect"
    )
    assert config.parse(BINPACK, builtin()).warnings == ()


def test_plugins_are_created_for_every_cycle() -> None:
    option = config.default(builtin()).tiers[0][0]
    assert option.make() is not option.make()


def test_sla_takes_a_duration() -> None:
    text = (
        'actions: "enqueue"\ntiers:\n- plugins:\n  - name: sla\n'
        "    arguments: {sla-waiting-time: 5m}\n"
    )
    plugin = config.parse(text, builtin()).tiers[0][0].make()
    assert isinstance(plugin, Sla)
    assert plugin.waiting_time == "5m"


def test_the_first_entry_of_configurations_counts() -> None:
    text = """\
actions: "allocate"
configurations:
- name: allocate
  arguments: {predicateErrorCacheEnable: false}
- name: allocate
  arguments: {predicateErrorCacheEnable: true}
"""
    parsed = config.parse(text, builtin())
    assert parsed.action_arguments == {"allocate": {"predicateErrorCacheEnable": False}}


def test_arguments_of_actions_have_defaults_and_unknown_ones_are_named() -> None:
    text = """\
actions: "allocate, gangpreempt"
configurations:
- name: gangpreempt
  arguments: {allowWholeBundle: "false", alowWholeBundle: true}
"""
    parsed = config.parse(text, builtin())
    assert parsed.argument("gangpreempt", "allowWholeBundle") is False
    assert parsed.argument("gangreclaim", "allowWholeBundle") is True
    assert parsed.warnings == (
        "line 4: action 'gangpreempt' does not know the argument 'alowWholeBundle' "
        "(did you mean 'allowWholeBundle'?); it has no effect",
    )


# Every argument of Volcano's plugins that hekla has, with its default.
ARGUMENTS = {
    "binpack": {
        "binpack.weight": 1,
        "binpack.cpu": 1,
        "binpack.memory": 1,
        "binpack.resources": "",
    },
    "capacity": {
        "ancestorReclaimLevel": 0,
        "capacity.DynamicResourceAllocationEnable": False,
        "capacity.DRAConsumableCapacityEnable": False,
    },
    "nodeorder": {
        "leastrequested.weight": 1,
        "mostrequested.weight": 0,
        "nodeaffinity.weight": 2,
        "podaffinity.weight": 2,
        "balancedresource.weight": 1,
        "tainttoleration.weight": 3,
        "imagelocality.weight": 1,
        "podtopologyspread.weight": 2,
    },
    "overcommit": {"overcommit-factor": 1.2},
    "predicates": {
        "predicate.NodeAffinityEnable": True,
        "predicate.NodePortsEnable": True,
        "predicate.TaintTolerationEnable": True,
        "predicate.PodAffinityEnable": True,
        "predicate.NodeVolumeLimitsEnable": True,
        "predicate.VolumeZoneEnable": True,
        "predicate.PodTopologySpreadEnable": True,
        "predicate.VolumeBindingEnable": True,
        "predicate.DynamicResourceAllocationEnable": False,
        "predicate.CacheEnable": False,
        "predicate.ProportionalEnable": False,
        "predicate.resources": "",
        "volumebinding.weight": 1,
        "volumebinding.bindTimeoutSeconds": 600,
        "volumebinding.shape": [],
        "dynamicresources.filterTimeoutSeconds": 10,
    },
    "resource-strategy-fit": {
        "resourceStrategyFitWeight": 10,
        "resources": {},
        "sra": {},
        "proportional": {},
    },
    "network-topology-aware": {
        "weight": 1,
        "hypernode.binpack.cpu": 1,
        "hypernode.binpack.memory": 1,
        "hypernode.binpack.resources": "",
        "hypernode.binpack.normal-pod.enable": True,
        "hypernode.binpack.normal-pod.fading": 0.8,
        "hypernode.gradient.evict.max-hypernodes": 8,
    },
    "deviceshare": {
        "deviceshare.GPUSharingEnable": False,
        "deviceshare.GPUNumberEnable": False,
        "deviceshare.VGPUEnable": False,
        "deviceshare.AscendMindClusterVNPUEnable": False,
        "deviceshare.AscendHAMiVNPUEnable": False,
        "deviceshare.NodeLockEnable": False,
        "deviceshare.SchedulePolicy": "",
        "deviceshare.ScheduleWeight": 0,
        "deviceshare.KnownGeometriesCMName": "volcano-vgpu-device-config",
        "deviceshare.KnownGeometriesCMNamespace": "kube-system",
        "deviceshare.GPUExclusiveRules": [],
    },
    "numa-aware": {"weight": 1},
    "nodegroup": {"strict": True, "enablePreferredOrder": False},
    "sla": {"sla-waiting-time": ""},
    "extender": {
        "extender.urlPrefix": "",
        "extender.httpTimeout": "1s",
        "extender.ignorable": False,
        "extender.managedResources": [],
        **{
            f"extender.{verb}Verb": ""
            for verb in (
                "onSessionOpen",
                "onSessionClose",
                "predicate",
                "prioritize",
                "preemptable",
                "reclaimable",
                "queueOverused",
                "jobEnqueueable",
                "jobEnqueued",
                "jobReady",
                "allocateFunc",
                "deallocateFunc",
            )
        },
    },
    "fairshare": {
        "fairshare.half-life": "24h",
        "fairshare.ahead": "1h",
        "fairshare.levels": "queue, namespace, user",
    },
    "task-topology": {"task-topology.weight": 1, "task-topology.mode": "buckets"},
    "tdm": {"tdm.evict.period": "1m", "tdm.timezone": ""},
    "usage": {
        "usage.weight": 5,
        "cpu.weight": 1,
        "memory.weight": 1,
        "thresholds": {},
        "estimator": {},
    },
    "rescheduling": {"interval": "5m", "metricsPeriod": "5m", "strategies": []},
    **{
        name: {}
        for name in (
            "cdp",
            "conformance",
            "drf",
            "gang",
            "pdb",
            "priority",
            "proportion",
            "resourcequota",
        )
    },
}


@pytest.mark.parametrize("name", builtin().names())
def test_every_argument_of_volcanos_plugin_is_known_with_its_default(name: str) -> None:
    plugin = builtin().get(name)
    assert plugin is not None
    known = {key: a.default for a in plugin.arguments_of.values() for key in a.keys}
    assert known == ARGUMENTS[name]


REFUSED = {
    "an argument for no action": (
        'actions: "allocate"\nconfigurations:\n- name: alocate\n',
        "line 3: unknown action 'alocate'; did you mean 'allocate'?",
    ),
    "an action's argument of the wrong kind": (
        'actions: "allocate"\nconfigurations:\n- name: preempt\n'
        "  arguments: {minCandidateNodesAbsolute: few}\n",
        "line 4: action 'preempt': minCandidateNodesAbsolute must be a whole number",
    ),
    "a reservation after something that is no duration": (
        'actions: "allocate"\nconfigurations:\n- name: allocate\n'
        "  arguments: {reserveAfter: soon}\n",
        "line 4: action 'allocate': reserveAfter",
    ),
    "an unknown action": (
        'actions: "enqueue, alocate"\n',
        "line 1: unknown action 'alocate'; did you mean 'allocate'?",
    ),
    "an action that Volcano has dropped": (
        'actions: "reserve"\n',
        "line 1: unknown action 'reserve'",
    ),
    "a misspelt plugin": (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: gagn\n',
        "line 4: unknown plugin 'gagn'; did you mean 'gang'?",
    ),
    "a misspelt switch": (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n    enableJobOrdr: false\n',
        "line 5: unknown switch 'enableJobOrdr'; did you mean 'enableJobOrder'?",
    ),
    "a switch that is neither true nor false": (
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n    enableJobOrder: 3\n',
        "line 5: enableJobOrder must be true or false, and 3 is not",
    ),
    "an argument of the wrong kind": (
        BINPACK.replace("binpack.weight: 10", "binpack.weight: heavy"),
        "line 12: plugin 'binpack': binpack.weight must be a whole number, and 'heavy' is not",
    ),
    "a resource weight of the wrong kind": (
        BINPACK.replace("nvidia.com/gpu: 2", "nvidia.com/gpu: two"),
        "line 16: plugin 'binpack': binpack.resources.nvidia.com/gpu must be a whole number",
    ),
    "a duration that is none": (
        'actions: "enqueue"\ntiers:\n- plugins:\n  - name: sla\n'
        "    arguments:\n      sla-waiting-time: 5\n",
        "line 6: plugin 'sla': sla-waiting-time must be text, and 5 is not",
    ),
    "no actions": ("tiers: []\n", "`actions` is missing"),
    "nothing": ("", "the configuration is empty"),
    "no YAML": ("actions: [\n", "line 2: not YAML"),
    "tiers that are no list": ('actions: "allocate"\ntiers: 3\n', "line 2: tiers must be a list"),
    "two ways to share at once": (
        'actions: "allocate"\ntiers:\n- plugins:\n  - {name: drf, enableHierarchy: true}\n'
        "  - {name: proportion}\n",
        "line 3: drf with enableHierarchy and proportion contradict each other",
    ),
    "an unknown key": (
        'actions: "allocate"\ntires: []\n',
        "unknown key 'tires'; did you mean 'tiers'?",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, want = REFUSED[case]
    with pytest.raises(ConfigError) as error:
        config.parse(text, builtin())
    assert want in str(error.value)
