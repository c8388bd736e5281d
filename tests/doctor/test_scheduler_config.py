"""What `doctor` finds in a KubeSchedulerConfiguration: each mistake alone, and nothing in a good one."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
import yaml

from extender.doctor.facts import Finding
from extender.doctor.scheduler_config import SAMPLED_PERCENTAGE, examine_scheduler, read_scheduler
from extender.settings.configuration import Settings
from tests.doctor.facts import settings

STANZA: dict[str, Any] = {
    "urlPrefix": "http://127.0.0.1:8888",
    "filterVerb": "filter",
    "preemptVerb": "preempt",
    "weight": 1,
    "nodeCacheCapable": True,
    "httpTimeout": "5s",
    "ignorable": False,
}
OFF = {"multiPoint": {"disabled": [{"name": "InterPodAffinity"}, {"name": "PodTopologySpread"}]}}
PEM = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
NEEDED_ALONE = {
    "multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}, {"name": "DefaultBinder"}]}
}
OFF_AT_EACH_POINT = dict.fromkeys(("preFilter", "filter", "preScore", "score"), OFF["multiPoint"])
ON_AGAIN = {"multiPoint": OFF["multiPoint"] | {"enabled": [{"name": "InterPodAffinity"}]}}
SLOW = {"schedulerName": "default-scheduler", "plugins": OFF, "percentageOfNodesToScore": 50}
USUAL = {"schedulerName": "default-scheduler", "plugins": OFF}
FOR_ALL_NODES = {"schedulerName": "default-scheduler-all-nodes", "plugins": OFF, "percentageOfNodesToScore": 100}
ALONE = {"nominateElsewhere": False}
TLS = {"tls": {"certFile": "/tls.crt", "keyFile": "/tls.key", "clientCAFile": "/ca.crt"}}
SECURE: dict[str, Any] = {
    "urlPrefix": "https://127.0.0.1:8888",
    "enableHTTPS": True,
    "tlsConfig": {"caFile": "/ca.crt", "certFile": "/client.crt", "keyFile": "/client.key"},
}


def document(plugins: object = OFF, top: dict[str, Any] | None = None, **changes: object) -> dict[str, Any]:
    """A good configuration for offload mode, with changes of the stanza; None takes a field out."""
    stanza = {name: value for name, value in {**STANZA, **changes}.items() if value is not None}
    profile = {"schedulerName": "default-scheduler", "plugins": plugins}
    good = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": SAMPLED_PERCENTAGE,
    }
    return good | {"profiles": [profile], "extenders": [stanza], **(top or {})}


def examine(given: object, ours: Settings | None, nodes: int = 0) -> list[Finding]:
    """All that doctor finds in a file."""
    config, faults = read_scheduler(given)
    return faults if config is None else [*faults, *examine_scheduler(config, ours, nodes)]


def scoring(**changes: Any) -> dict[str, Any]:
    """One that asks for scores as well."""
    return document(prioritizeVerb="prioritize", **changes)


MISTAKES: list[tuple[dict[str, Any], Settings, list[str], str]] = [
    ({"kind": "Pod"}, Settings(), ["error"], "kind is Pod"),
    (document(top={"extenders": []}), Settings(), ["error"], "none of the 0 extenders"),
    (document(urlPrefix="http://127.0.0.1:9999"), Settings(), ["warning"], "listens on port 8888"),
    (document(filterVerb=None), Settings(), ["error"], "filterVerb is missing"),
    (document(filterVerb="predicates"), Settings(), ["error"], "answers at /filter"),
    (document(), settings(placement="cooperative"), ["warning"], "prioritizeVerb is missing"),
    (scoring(), Settings(), ["info"], "every answer to it is empty"),
    (document(prioritizeVerb="priorities"), Settings(), ["info", "error"], "every answer to it is empty"),
    (document(preemptVerb=None), Settings(), ["warning"], "preemptVerb is missing"),
    (
        document(managedResources=[{"name": "x/y"}]),
        Settings(),
        ["error"],
        "places all others without their constraints",
    ),
    (
        scoring(plugins={}, ignorable=True, managedResources=[{"name": "x/y"}]),
        settings(mode="augment"),
        ["warning"],
        "managedResources is set",
    ),
    (
        document(urlPrefix="https://127.0.0.1:8888", enableHTTPS=True, tlsConfig={"caFile": "/ca"}),
        Settings(),
        ["error"],
        "plain HTTP",
    ),
    (
        document(**SECURE | {"tlsConfig": {"insecure": True, "certFile": "/c", "keyFile": "/k"}}),
        settings(server=TLS),
        ["error"],
        "without a CA",
    ),
    (
        document(**SECURE | {"tlsConfig": {"certFile": "/c", "keyFile": "/k"}}),
        settings(server=TLS),
        ["error"],
        "without a CA",
    ),
    (
        document(**SECURE | {"tlsConfig": {"caFile": "/ca.crt", "insecure": True, "certFile": "/c"}}),
        settings(server=TLS),
        ["error"],
        "extenders[0].tlsConfig.insecure is set beside a CA",
    ),
    (
        document(**SECURE | {"tlsConfig": {"certFile": "/c", "keyFile": "/k"}, "enableHTTPS": False}),
        settings(server=TLS),
        ["warning"],
        "with the CAs of its own machine",
    ),
    (
        document(**SECURE | {"tlsConfig": {"insecure": True, "certFile": "/c", "keyFile": "/k"}, "enableHTTPS": False}),
        settings(server=TLS),
        ["error"],
        "does not verify",
    ),
    (document(enableHTTPS=True), Settings(), ["warning"], "enableHTTPS is set but urlPrefix is not https"),
    (
        document(**SECURE | {"tlsConfig": {"caFile": "/ca.crt"}}),
        settings(server=TLS),
        ["error"],
        "tlsConfig has none",
    ),
    (document(urlPrefix="http://10.0.0.9:8888"), Settings(), ["warning"], "in plain HTTP"),
    (
        document(**SECURE | {"urlPrefix": "https://extender.kube-system.svc:8888"}),
        settings(server=TLS),
        ["info"],
        "cluster DNS",
    ),
    (scoring(weight=0), settings(placement="cooperative"), ["error"], "extenders[0].weight is 0 or missing"),
    (scoring(weight=None), settings(placement="cooperative"), ["error"], "extenders[0].weight is 0 or missing"),
    (scoring(weight=100), settings(placement="cooperative"), ["warning"], "counts 1000"),
    (document(nodeCacheCapable=False), Settings(), ["warning"], "nodeCacheCapable is off"),
    (document(httpTimeout=5), Settings(), ["error"], "extenders[0].httpTimeout: expected a duration"),
    (document(httpTimeout="5x"), Settings(), ["error"], "extenders[0].httpTimeout: expected a duration"),
    (
        document(nodeCacheCapable=None, nodeCachecapable=True),
        Settings(),
        ["error"],
        "extenders[0].nodeCachecapable: unknown field",
    ),
    (document(top={"clientConection": {}}), Settings(), ["error"], "clientConection: unknown field"),
    (document(httpTimeout="4s"), Settings(), ["warning"], "not longer than server.requestTimeout (4s)"),
    (document(ignorable=True), Settings(), ["error"], "ignorable is on"),
    (scoring(plugins={}, ignorable=False), settings(mode="augment"), ["warning"], "ignorable is off"),
    (
        scoring(plugins={}, ignorable=True),
        settings(mode="augment", quota={"enabled": True}),
        ["warning"],
        "placed over their quotas",
    ),
    (document(plugins={}), Settings(), ["warning", "warning"], "InterPodAffinity is enabled"),
    (
        document(plugins={"filter": OFF["multiPoint"], "score": OFF["multiPoint"]}),
        Settings(),
        ["warning", "warning"],
        "at some extension points only",
    ),
    (document(plugins=ON_AGAIN), Settings(), ["warning"], "InterPodAffinity is enabled"),
    (scoring(ignorable=True), settings(mode="augment"), ["error", "error"], "does not decide in its place"),
    (
        scoring(ignorable=True, plugins={"filter": OFF["multiPoint"]}),
        settings(mode="augment"),
        ["error", "error"],
        "is disabled at filter, and the extender does not decide in its place",
    ),
    (document(), settings(rejectedPods={"nominateElsewhere": False}), ["warning"], "scheduler samples the nodes"),
    (document(top={"percentageOfNodesToScore": 100}), Settings(), ["warning"], "filters 5000 of 5000 nodes"),
    (document(top={"percentageOfNodesToScore": 100}), settings(rejectedPods=ALONE), ["warning"], "filters 5000 of"),
    (document(top={"profiles": [SLOW]}), Settings(), ["warning"], "profile default-scheduler: percentageOfNodesTo"),
    (
        scoring(plugins={}, ignorable=True, top={"percentageOfNodesToScore": 21}),
        settings(mode="augment"),
        ["warning"],
        "percentageOfNodesToScore is 21: the scheduler filters 1050 of 5000 nodes",
    ),
    (document(bindVerb="bind"), Settings(), ["error"], "does not bind (server.paths.bind is empty)"),
    (document(bindVerb="binding"), settings(server={"paths": {"bind": "/bind"}}), ["error"], "answers at /bind"),
    (document(top={"percentageOfNodesToScore": 10}), Settings(), ["info"], "percentageOfNodesToScore is 10, 2 is"),
    (document(top={"percentageOfNodesToScore": None}), Settings(), ["info"], "percentageOfNodesToScore is not set"),
]


@pytest.mark.parametrize(
    ("given", "ours", "severities", "words"), MISTAKES, ids=lambda value: value if isinstance(value, str) else None
)
def test_a_mistake_in_the_schedulers_configuration_is_found_alone(
    given: dict[str, Any], ours: Settings, severities: list[str], words: str
) -> None:
    found = examine(given, ours, nodes=5000)
    assert [finding.severity for finding in found] == severities
    assert {finding.check for finding in found} == {"scheduler"}
    assert words in found[0].problem
    assert all(finding.remedy for finding in found)


@pytest.mark.parametrize(
    ("field", "remedy"),
    [("clientConection", "write clientConnection"), ("leaderelection", "write leaderElection"), ("none", "remove it")],
)
def test_a_field_that_is_near_to_another_one_is_taken_for_it(field: str, remedy: str) -> None:
    (found,) = examine(document(top={field: {}}), Settings(), nodes=5000)
    assert found.remedy == remedy


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (document(), Settings()),
        (document(**SECURE), settings(server=TLS)),
        (document(**SECURE | {"enableHTTPS": False}), settings(server=TLS)),
        (document(**SECURE | {"tlsConfig": {"caData": PEM, "certData": PEM}}), settings(server=TLS)),
        (scoring(plugins={}, ignorable=True), settings(mode="augment")),
        (scoring(plugins={}), settings(mode="augment", quota={"enabled": True})),
        (scoring(plugins={}, ignorable=True), settings(mode="augment", quota={"enabled": True, "mode": "Audit"})),
        (scoring(), settings(placement="cooperative")),
        (document(weight=0), Settings()),
        (scoring(), settings(answers={"shortlist": 0})),
        (document(plugins=NEEDED_ALONE), Settings()),
        (document(plugins=OFF_AT_EACH_POINT), Settings()),
        (document(bindVerb="bind"), settings(server={"paths": {"bind": "/bind"}})),
        (scoring(plugins={}, ignorable=True, top={"percentageOfNodesToScore": 20}), settings(mode="augment")),
        (document(top={"profiles": [SLOW | {"percentageOfNodesToScore": 2}, FOR_ALL_NODES]}), Settings()),
        (document(top={"profiles": [USUAL, FOR_ALL_NODES]}), Settings()),
    ],
    ids=[
        "offload",
        "https",
        "https by the scheme of urlPrefix alone",
        "https with certificates inline",
        "augment",
        "augment with quotas",
        "augment with quotas in audit",
        "cooperative",
        "no scores",
        "no shortlist",
        "all plugins off but those that must be on",
        "off at each point",
        "bindings",
        "augment with another sample",
        "a sample, and a profile for all nodes",
        "a sample for all, and a profile for all nodes",
    ],
)
def test_a_good_configuration_of_the_scheduler_gives_no_finding(given: dict[str, Any], ours: Settings) -> None:
    assert examine(given, ours, nodes=5000) == []


def test_in_a_cluster_that_is_not_sampled_the_percentage_does_not_matter() -> None:
    given = document(top={"percentageOfNodesToScore": 50})
    assert [len(examine(given, Settings(), nodes=nodes)) for nodes in (0, 100, 101)] == [0, 0, 1]
    given = document(top={"percentageOfNodesToScore": 100})
    assert examine(given, settings(rejectedPods=ALONE), nodes=1000) == []


def packing(strategy: str) -> dict[str, Any]:
    """A good configuration whose profile scores resources so."""
    chosen: dict[str, Any] = {"type": strategy, "resources": [{"name": "cpu", "weight": 1}]}
    if strategy == "RequestedToCapacityRatio":
        chosen["requestedToCapacityRatio"] = {"shape": [{"utilization": 0, "score": 0}]}
    args = {"scoringStrategy": chosen}
    given = document()
    given["profiles"][0]["pluginConfig"] = [{"name": "InterPodAffinity"}, {"name": "NodeResourcesFit", "args": args}]
    return given


STRATEGIES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (packing("MostAllocated"), {}, "by MostAllocated, and answers.scoringStrategy is LeastAllocated"),
    (
        document(),
        {"answers": {"scoringStrategy": "MostAllocated"}},
        "by LeastAllocated, and answers.scoringStrategy is",
    ),
    (packing("RequestedToCapacityRatio"), {}, "by RequestedToCapacityRatio"),
    (packing("MostAllocated"), {"answers": {"scoringStrategy": "MostAllocated"}}, ""),
    (packing("MostAllocated"), {"answers": {"scoringStrategy": "Ignored"}}, ""),
    (document(), {}, ""),
]


@pytest.mark.parametrize(("given", "ours", "words"), STRATEGIES)
def test_a_profile_that_scores_resources_otherwise_than_decisive_placement_is_named(
    given: dict[str, Any], ours: dict[str, Any], words: str
) -> None:
    found = [each for each in examine(given, settings(**ours)) if "scoringStrategy" in each.problem]
    assert [each.severity for each in found] == (["info"] if words else [])
    assert all(words in each.problem for each in found)
    assert all(("nearer" in each.remedy) == ("Ratio" in words) for each in found)


def test_with_cooperative_placement_the_profile_scores_all_pods_itself() -> None:
    found = examine(packing("MostAllocated"), settings(placement="cooperative"))
    assert not any("scoringStrategy" in each.problem for each in found)


def configured(**arguments: Any) -> dict[str, Any]:
    """A good configuration with arguments of plugins."""
    given = document()
    given["profiles"][0]["pluginConfig"] = [{"name": name, "args": args} for name, args in arguments.items()]
    return given


ZONES = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
LISTED = {"defaultingType": "List", "defaultConstraints": [ZONES]}


LOST: list[tuple[dict[str, Any], str]] = [
    (configured(PodTopologySpread=LISTED), "defaultConstraints of PodTopologySpread have no effect"),
    (configured(PodTopologySpread={"defaultingType": "List"}), "defaultingType of PodTopologySpread has no effect"),
    (configured(InterPodAffinity={"hardPodAffinityWeight": 5}), "hardPodAffinityWeight of InterPodAffinity has no"),
    (
        configured(InterPodAffinity={"hardPodAffinityWeight": 5, "ignorePreferredTermsOfExistingPods": True}),
        "hardPodAffinityWeight and ignorePreferredTermsOfExistingPods of InterPodAffinity have no effect",
    ),
]


@pytest.mark.parametrize(("given", "words"), LOST)
def test_arguments_of_a_disabled_plugin_are_named_and_the_remedy_keeps_them(given: dict[str, Any], words: str) -> None:
    (found,) = examine(given, Settings())
    assert found.severity == "warning"
    assert words in found.problem
    section = yaml.safe_load(re.fullmatch("set (.*) of the extender, and restart it", found.remedy)[1])  # type: ignore[index]
    assert examine(given, settings(**section_of(section))) == []
    (unknown,) = examine(given, None)  # where the settings are not known it may be set
    assert (unknown.problem, unknown.remedy) == (
        found.problem,
        f"unless the extender has it already, {found.remedy}",
    )


def section_of(remedy: dict[str, Any]) -> dict[str, Any]:
    """Settings from `rules.NAME: {...}`."""
    ((path, value),) = remedy.items()
    return {"rules": {path.removeprefix("rules."): value}}


def test_arguments_of_a_plugin_that_decides_are_its_own() -> None:
    given = configured(PodTopologySpread=LISTED, InterPodAffinity={"hardPodAffinityWeight": 5})
    given["profiles"][0]["plugins"] = {}
    given["extenders"][0] |= {"ignorable": True, "prioritizeVerb": "prioritize"}
    assert examine(given, settings(mode="augment")) == []


FOREIGN = {
    "urlPrefix": "http://127.0.0.1:9251",
    "filterVerb": "predicate",
    "prioritizeVerb": "prioritize",
    "weight": 100,
    "managedResources": [{"name": "example.com/capacity", "ignoredByScheduler": True}],
}


@pytest.mark.parametrize(
    "foreign", [FOREIGN, FOREIGN | {"filterVerb": "filter"}, FOREIGN | {"urlPrefix": "http://gpu:8001/scheduler"}]
)
def test_the_entry_of_another_extender_is_left_as_it_is(foreign: dict[str, Any]) -> None:
    for others in ([], [foreign | {"managedResources": [], "filterVerb": "predicate"}]):
        (found,) = examine(document(top={"extenders": [foreign, *others]}), Settings())
        assert found.problem.startswith("none of the")
        assert found.remedy.startswith("add the extenders entry")
    assert examine(document(top={"extenders": [foreign, STANZA]}), Settings()) == []


def test_the_entry_that_leads_to_a_service_is_found_beside_others() -> None:
    behind = STANZA | {"urlPrefix": "http://127.0.0.1:443"}
    (found,) = examine(document(top={"extenders": [FOREIGN, behind]}), Settings())
    assert "but the extender listens on port 8888" in found.problem


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (document(plugins={}, ignorable=True, filterVerb="filter", preemptVerb=None, httpTimeout="1s"), []),
        (document(urlPrefix="https://10.0.0.9:443", enableHTTPS=True, tlsConfig={"caFile": "/ca"}), []),
        (document(nodeCacheCapable=False), [("warning", "nodeCacheCapable is off")]),
        (document(**SECURE | {"tlsConfig": {}}), [("error", "https without a CA")]),
        (document(urlPrefix="http://10.0.0.9:8888"), [("warning", "requests go to 10.0.0.9 in plain HTTP")]),
        (scoring(weight=100), [("warning", "weight is 100")]),
        (document(top={"extenders": []}), [("error", "none of the 0 extenders has the port and paths of this")]),
        (document(top={"extenders": [FOREIGN]}), [("warning", "none of the 1 extenders has the port and paths that")]),
    ],
)
def test_without_the_settings_only_what_is_wrong_with_any_of_them_is_found(
    given: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    reported = examine(given, None, nodes=5000)
    assert [finding.severity for finding in reported] == [severity for severity, _ in found]
    assert all(words in finding.problem for finding, (_, words) in zip(reported, found, strict=True))
    assert not any("ignorable" in finding.remedy or "disable" in finding.remedy for finding in reported)


def test_the_entry_is_found_by_the_port_at_which_the_service_answers() -> None:
    config, _ = read_scheduler(document(urlPrefix="http://127.0.0.1:7777/v2", filterVerb="f", preemptVerb="p"))
    assert config is not None
    (found, *_) = examine_scheduler(config, Settings(), url="http://127.0.0.1:7777")
    assert "listens on port 8888" in found.problem
    assert [each.problem.partition(" ")[0] for each in examine_scheduler(config, Settings(), url="http://[")] == [
        "none"
    ]
