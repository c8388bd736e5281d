"""What keeps kube-scheduler from starting is an error of `doctor` with the path of the field; `tests/e2e` asks kube-scheduler itself."""

from __future__ import annotations

from typing import Any

import pytest

from extender.doctor.scheduler_config import read_scheduler
from extender.doctor.scheduler_validation import FATAL
from tests.builders import PREFERRED, REQUIRED

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
OURS = {"urlPrefix": "http://127.0.0.1:8888", "filterVerb": "filter"}
ZONES = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
POINT = {"utilization": 0, "score": 0}
GPU = [{"name": "example.com/gpu"}]


def profile(**fields: Any) -> dict[str, Any]:
    """A file with one profile."""
    return {"profiles": [{"schedulerName": "default-scheduler", **fields}]}


def plugins(**points: Any) -> dict[str, Any]:
    """A file with one profile that has these sets of plugins."""
    return profile(plugins=points)


def args(name: str, **given: Any) -> dict[str, Any]:
    """A file with arguments of one plugin."""
    return profile(pluginConfig=[{"name": name, "args": given}])


def spread(**changes: Any) -> dict[str, Any]:
    """A file with a default constraint that has these changes."""
    return args("PodTopologySpread", defaultingType="List", defaultConstraints=[ZONES | changes])


def strategy(**fields: Any) -> dict[str, Any]:
    """A file with a scoring strategy."""
    return args("NodeResourcesFit", scoringStrategy=fields)


def required(**requirement: Any) -> dict[str, Any]:
    """A file that requires something of the nodes of all pods."""
    return args("NodeAffinity", addedAffinity={REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}})


def entry(**fields: Any) -> dict[str, Any]:
    """A file with one extender."""
    return {"extenders": [OURS | fields]}


CONSTRAINT = "profiles[0].pluginConfig[0].args.defaultConstraints[0]"
FIT = "profiles[0].pluginConfig[0].args"
SHAPE = f"{FIT}.scoringStrategy.requestedToCapacityRatio"
TERM = f"{FIT}.addedAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"

# A file with one fault, and the field that is named.
FAULTS: list[tuple[dict[str, Any], str]] = [
    # what cannot be read
    ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "apiVersion"),
    ({"apiVersion": None}, "apiVersion"),
    ({"kind": "Pod"}, "kind"),
    ({"profile": []}, "profile"),
    ({"percentageOfNodesToScore": "2"}, "percentageOfNodesToScore"),
    ({"parallelism": 1.5}, "parallelism"),
    ({"parallelism": 2**40}, "parallelism"),
    ({"parallelism": True}, "parallelism"),
    ({"leaderElection": []}, "leaderElection"),
    ({"leaderElection": {"leaderElect": "false"}}, "leaderElection.leaderElect"),
    ({"leaderElection": {"leaseDuration": 15}}, "leaderElection.leaseDuration"),
    ({"clientConnection": {"kubeconfg": ""}}, "clientConnection.kubeconfg"),
    ({"clientConnection": "x"}, "clientConnection"),
    ({"profiles": {"schedulerName": "x"}}, "profiles"),
    ({"profiles": ["default-scheduler"]}, "profiles[0]"),
    (profile(schedulername="x"), "profiles[0].schedulername"),
    (profile(schedulerName=5), "profiles[0].schedulerName"),
    (profile(plugins=[]), "profiles[0].plugins"),
    (plugins(fliter={}), "profiles[0].plugins.fliter"),
    (plugins(filter=[]), "profiles[0].plugins.filter"),
    (plugins(filter={"disabled": "*"}), "profiles[0].plugins.filter.disabled"),
    (plugins(multiPoint={"disabled": ["InterPodAffinity"]}), "profiles[0].plugins.multiPoint.disabled[0]"),
    (
        plugins(score={"enabled": [{"name": "ImageLocality", "weight": "2"}]}),
        "profiles[0].plugins.score.enabled[0].weight",
    ),
    (profile(pluginConfig={"InterPodAffinity": {}}), "profiles[0].pluginConfig"),
    (profile(pluginConfig=[{"name": "InterPodAffinity", "args": []}]), FIT),
    (args("InterPodAffinity", hardPodAffinityweight=1), f"{FIT}.hardPodAffinityweight"),
    (args("InterPodAffinity", hardPodAffinityWeight="1"), f"{FIT}.hardPodAffinityWeight"),
    (args("InterPodAffinity", kind="NodeAffinityArgs"), f"{FIT}.kind"),
    (args("PodTopologySpread", defaultConstraints={}), f"{FIT}.defaultConstraints"),
    ({"extenders": OURS}, "extenders"),
    ({"extenders": [OURS["urlPrefix"]]}, "extenders[0]"),
    (entry(tlsConfig="none"), "extenders[0].tlsConfig"),
    (entry(tlsConfig={"caData": "%"}), "extenders[0].tlsConfig.caData"),
    (entry(ignorable="true"), "extenders[0].ignorable"),
    (entry(weight="1"), "extenders[0].weight"),
    (entry(httpTimeout=5), "extenders[0].httpTimeout"),
    (entry(httpTimeout="5"), "extenders[0].httpTimeout"),
    (entry(managedResources=["example.com/gpu"]), "extenders[0].managedResources[0]"),
    (entry(nodeCachecapable=True), "extenders[0].nodeCachecapable"),
    (entry(httpTimeout=None), "extenders[0].httpTimeout"),
    # what is out of bounds
    ({"clientConnection": {"burst": -1}}, "clientConnection.burst"),
    ({"leaderElection": {"leaseDuration": "10s"}}, "leaderElection.leaseDuration"),
    ({"leaderElection": {"resourceLock": "endpoints"}}, "leaderElection.resourceLock"),
    ({"parallelism": 0}, "parallelism"),
    ({"percentageOfNodesToScore": 250}, "percentageOfNodesToScore"),
    ({"podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds"),
    ({"podInitialBackoffSeconds": 20}, "podMaxBackoffSeconds"),
    (profile(percentageOfNodesToScore=-1), "profiles[0].percentageOfNodesToScore"),
    (profile(schedulerName=""), "profiles[0].schedulerName"),
    ({"profiles": [{"schedulerName": "a"}, {}]}, "profiles[1].schedulerName"),
    ({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}, "profiles[1].schedulerName"),
    (
        {
            "profiles": [
                {"schedulerName": "a"},
                {"schedulerName": "b", "plugins": {"queueSort": {"enabled": [{"name": "PrioritySort"}]}}},
            ]
        },
        "profiles[1].plugins.queueSort",
    ),
    (plugins(score={"enabled": [{"name": "ImageLocality"}] * 2}), "profiles[0].plugins.score.enabled[1]"),
    (plugins(filter={"enabled": [{"name": "EBSLimits"}]}), "profiles[0].plugins.filter.enabled[0]"),
    (plugins(multiPoint={"disabled": [{"name": "PrioritySort"}]}), "profiles[0].plugins"),
    (plugins(bind={"disabled": [{"name": "*"}]}), "profiles[0].plugins"),
    (plugins(filter={"enabled": [{"name": "ImageLocality"}]}), "profiles[0].plugins.filter.enabled[0]"),
    (
        entry(managedResources=[GPU[0] | {"ignoredByScheduler": True}])
        | plugins(multiPoint={"disabled": [{"name": "NodeResourcesFit"}]}),
        "profiles[0].plugins",
    ),
    (entry(tlsConfig={"caData": "YQ=="}), "extenders[0].tlsConfig"),
    (profile(pluginConfig=[{"name": "InterPodAffinity"}] * 2), "profiles[0].pluginConfig[1]"),
    (args("InterPodAffinity", hardPodAffinityWeight=101), f"{FIT}.hardPodAffinityWeight"),
    (args("DefaultPreemption", minCandidateNodesPercentage=101), f"{FIT}.minCandidateNodesPercentage"),
    (args("DefaultPreemption", minCandidateNodesAbsolute=-1), f"{FIT}.minCandidateNodesAbsolute"),
    (
        args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
        f"{FIT}.minCandidateNodesPercentage",
    ),
    (args("DynamicResources", bindingTimeout="10ms"), f"{FIT}.bindingTimeout"),
    (args("VolumeBinding", bindTimeoutSeconds=-1), f"{FIT}.bindTimeoutSeconds"),
    (args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]), f"{FIT}.resources[0].weight"),
    (args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}] * 2), f"{FIT}.resources[1].name"),
    (args("NodeResourcesFit", ignoredResources=["a b"]), f"{FIT}.ignoredResources[0]"),
    (args("NodeResourcesFit", ignoredResourceGroups=["example.com/gpu"]), f"{FIT}.ignoredResourceGroups[0]"),
    (strategy(type="Best"), f"{FIT}.scoringStrategy.type"),
    (strategy(resources=[{"name": "cpu"}]), f"{FIT}.scoringStrategy.type"),
    (strategy(type="MostAllocated", resources=[{"name": "cpu", "weight": 101}]), f"{FIT}.scoringStrategy.resources[0]"),
    (strategy(type="RequestedToCapacityRatio"), f"{SHAPE}.shape"),
    (strategy(type="MostAllocated", requestedToCapacityRatio={"shape": [POINT]}), SHAPE),
    (
        strategy(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [POINT, POINT]}),
        f"{SHAPE}.shape[1].utilization",
    ),
    (
        strategy(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [POINT | {"score": 11}]}),
        f"{SHAPE}.shape[0].score",
    ),
    (
        strategy(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [POINT | {"utilization": 101}]}),
        f"{SHAPE}.shape[0].utilization",
    ),
    (args("PodTopologySpread", defaultConstraints=[ZONES]), f"{FIT}.defaultingType"),
    (args("PodTopologySpread", defaultingType="Lists"), f"{FIT}.defaultingType"),
    (args("PodTopologySpread", defaultingType="List", defaultConstraints=[ZONES] * 2), f"{FIT}.defaultConstraints[1]"),
    (spread(maxSkew=0), f"{CONSTRAINT}.maxSkew"),
    (spread(topologyKey=""), f"{CONSTRAINT}.topologyKey"),
    (spread(whenUnsatisfiable="Never"), f"{CONSTRAINT}.whenUnsatisfiable"),
    (spread(labelSelector={}), f"{CONSTRAINT}.labelSelector"),
    (required(key="zone", operator="Is"), TERM),
    (required(key="zone", operator="In"), TERM),
    (required(key="a b", operator="Exists"), TERM),
    (required(key="zone", operator="Exists", values=["a"]), TERM),
    (required(key="zone", operator="Gt", values=["a"]), TERM),
    (
        args("NodeAffinity", addedAffinity={PREFERRED: [{"weight": 1, "preference": {"matchFields": [{"key": "x"}]}}]}),
        f"{FIT}.addedAffinity.{PREFERRED}[0].preference.matchFields[0]",
    ),
    (entry(prioritizeVerb="prioritize"), "extenders[0].weight"),
    (entry(prioritizeVerb="prioritize", weight=-1), "extenders[0].weight"),
    (entry(tlsConfig={"insecure": True, "caFile": "/ca.crt"}), "extenders[0].tlsConfig.insecure"),
    (entry(managedResources=[{"name": "cpu"}]), "extenders[0].managedResources[0].name"),
    (entry(managedResources=[{"name": "a b/c"}]), "extenders[0].managedResources[0].name"),
    ({"extenders": [OURS | {"managedResources": GPU}] * 2}, "extenders[1].managedResources[0].name"),
    ({"extenders": [OURS | {"bindVerb": "bind"}] * 2}, "extenders[1].bindVerb"),
]

# Files that kube-scheduler takes, near to the faults above.
TAKEN: list[dict[str, Any]] = [
    {},
    {"profiles": None, "extenders": None, "leaderElection": None, "percentageOfNodesToScore": None},
    {"parallelism": 5, "clientConnection": {"qps": 5, "burst": 0}},
    {"percentageOfNodesToScore": 0, "podInitialBackoffSeconds": 10},
    {"leaderElection": {"leaderElect": False, "leaseDuration": "1s", "resourceLock": "none"}},
    {"leaderElection": {"leaseDuration": "0", "renewDeadline": "9s"}},
    {"profiles": [{}]},
    {"profiles": [{"schedulerName": "a"}, {"schedulerName": "b", "percentageOfNodesToScore": 100}]},
    plugins(multiPoint={"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]}),
    plugins(bind={"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultBinder"}]}),
    plugins(multiPoint={"enabled": [{"name": "ImageLocality", "weight": 5}], "disabled": [{"name": "Unknown"}]}),
    profile(pluginConfig=[{"name": "InterPodAffinity"}, {"name": "Another", "args": {"a": [1]}}]),
    args("InterPodAffinity", apiVersion=HEAD["apiVersion"], kind="InterPodAffinityArgs", hardPodAffinityWeight=0),
    args("NodeResourcesFit", ignoredResources=["example.com/gpu"], ignoredResourceGroups=["example.com"]),
    strategy(type="MostAllocated", resources=[{"name": "cpu", "weight": 0}]),
    strategy(type="RequestedToCapacityRatio", requestedToCapacityRatio={"shape": [POINT]}),
    spread(minDomains=2, nodeTaintsPolicy="Honor", matchLabelKeys=["app"]),
    required(key="zone", operator="In", values=["a", "b"]),
    required(key="cores", operator="Gt", values=["4"]),
    args("NodeAffinity", addedAffinity={PREFERRED: [{"preference": {"matchFields": [{"key": "x"}]}}]}),
    entry(prioritizeVerb="prioritize", weight=1, bindVerb="bind", httpTimeout="1m30s", managedResources=GPU),
    entry(tlsConfig={"insecure": True}, enableHTTPS=True),
]


# kube-scheduler reads and takes these, and ends when it begins to run.
LATE: list[tuple[dict[str, Any], str]] = [({"leaderElection": {"retryPeriod": "9s"}}, "leaderElection.renewDeadline")]


def names(finding: Any) -> str:
    return str(finding.problem.partition(" ")[0].rstrip(":"))


@pytest.mark.parametrize(
    ("changes", "field"), FAULTS, ids=[f"{place} {field}" for place, (_, field) in enumerate(FAULTS)]
)
def test_what_keeps_the_scheduler_from_starting_is_an_error_that_names_the_field(
    changes: dict[str, Any], field: str
) -> None:
    _, found = read_scheduler(HEAD | changes)
    assert [finding.severity for finding in found] == ["error"]
    assert names(found[0]).startswith(field)
    assert found[0].problem.endswith(FATAL)
    assert found[0].remedy


@pytest.mark.parametrize("changes", TAKEN)
def test_what_the_scheduler_takes_is_no_finding(changes: dict[str, Any]) -> None:
    config, found = read_scheduler(HEAD | changes)
    assert config is not None
    assert found == []


def test_every_fault_is_named_at_once() -> None:
    changes = {"parallelism": "1", "profiles": [{"plugins": []}], "extenders": [{"ignorable": 1}, {"weigth": 1}]}
    config, found = read_scheduler(HEAD | changes)
    assert config is None
    assert [names(finding) for finding in found] == [
        "parallelism",
        "profiles[0].plugins",
        "extenders[0].ignorable",
        "extenders[1].weigth",
    ]
    _, found = read_scheduler(
        HEAD | {"parallelism": 0, "percentageOfNodesToScore": 250} | entry(weight=-1, prioritizeVerb="p")
    )
    assert len(found) == 3


@pytest.mark.parametrize("document", [None, [], "text", 5, {"kind": []}, {"kind": {}}])
def test_a_file_that_is_no_configuration_is_an_error(document: object) -> None:
    config, (found,) = read_scheduler(document)
    assert config is None
    assert found.severity == "error"


def test_yaml_may_write_an_integer_with_a_fraction_of_zero() -> None:
    assert read_scheduler(HEAD | {"parallelism": 5.0})[1] == []


def test_two_plugins_that_sort_the_queue_are_an_error() -> None:
    sorting = {"enabled": [{"name": "PrioritySort"}, {"name": "QOSSort"}]}
    _, found = read_scheduler(HEAD | plugins(queueSort=sorting))
    assert [finding.severity for finding in found] == ["warning", "error"]


def test_a_plugin_that_another_build_may_have_is_a_warning() -> None:
    for name, remedy in (
        ("PodTopologySpred", "write PodTopologySpread"),
        ("Coscheduling", "remove it, unless yours was"),
    ):
        config, (found,) = read_scheduler(HEAD | plugins(multiPoint={"enabled": [{"name": name}]}))
        assert config is not None
        assert (found.severity, found.remedy) == ("warning", remedy)
    sorting = {"enabled": [{"name": "QOSSort"}], "disabled": [{"name": "*"}]}
    _, (found,) = read_scheduler(HEAD | plugins(queueSort=sorting))
    assert found.severity == "warning"
