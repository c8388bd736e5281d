"""The settings: defaults, the strict reading of a document, and what is refused with which words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from msgspec import Struct

from extender import settings as settings_module
from extender.model.documents import DocumentError
from extender.model.units import Duration
from extender.settings.configuration import (
    API_VERSION,
    KIND,
    Settings,
    default_settings,
    parse_settings,
    settings_document,
)

PACKAGE = Path(settings_module.__file__).parent.parent
HEAD = {"apiVersion": API_VERSION, "kind": KIND}
OWN_FILES = {"certFile": "/tls.crt", "keyFile": "/tls.key"}


def nested(path: str, value: object) -> dict[str, Any]:
    """A document that sets one field, given by its path."""
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return HEAD | value


def problems_of(document: object) -> list[str]:
    with pytest.raises(DocumentError) as rejected:
        parse_settings(document)
    return list(rejected.value.problems)


def constraint(**changes: object) -> dict[str, object]:
    """A sound default constraint with some fields changed."""
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"} | changes


def spread(*constraints: dict[str, object], defaulting: str = "List") -> dict[str, Any]:
    return nested("rules.topologySpread", {"defaultingType": defaulting, "defaultConstraints": list(constraints)})


def test_a_document_that_sets_nothing_means_the_defaults() -> None:
    assert parse_settings(HEAD) == Settings()


def test_null_means_the_default_at_every_depth() -> None:
    assert parse_settings(HEAD | {"server": None, "logging": {"level": None}}) == Settings()


@pytest.mark.parametrize(("mode", "enabled", "shortlist"), [("offload", True, 50), ("augment", False, 0)])
def test_the_mode_decides_what_the_document_leaves_open(mode: str, *, enabled: bool, shortlist: int) -> None:
    settings = parse_settings(HEAD | {"mode": mode, "rules": {"topologySpread": {"enabled": None}}})
    assert (settings.rules.inter_pod_affinity.enabled, settings.rules.topology_spread.enabled) == (enabled, enabled)
    assert settings.answers.shortlist == shortlist


def test_what_the_document_says_wins_over_the_mode() -> None:
    settings = parse_settings(
        HEAD | {"mode": "augment", "rules": {"topologySpread": {"enabled": True}}, "answers": {"shortlist": 7}}
    )
    assert (settings.rules.topology_spread.enabled, settings.rules.inter_pod_affinity.enabled) == (True, False)
    assert settings.answers.shortlist == 7


def test_the_defaults_are_those_of_offload_mode() -> None:
    assert default_settings("offload") == Settings()


def test_the_document_given_is_left_as_it_is() -> None:
    document: dict[str, Any] = HEAD | {"rules": {"topologySpread": {}}}
    parse_settings(document)
    assert document == HEAD | {"rules": {"topologySpread": {}}}


def test_settings_written_as_a_document_are_read_back_the_same() -> None:
    settings = parse_settings(
        spread(constraint(whenUnsatisfiable="DoNotSchedule", minDomains=3)) | {"server": {"requestTimeout": "1m30s"}}
    )
    assert settings.server.request_timeout == Duration(90)
    assert parse_settings(settings_document(settings)) == settings


@pytest.mark.parametrize("document", [None, [], "mode: offload", 3], ids=repr)
def test_anything_but_a_mapping_is_rejected(document: object) -> None:
    assert problems_of(document) == [f"expected a mapping, got {type(document).__name__}"]


def test_a_document_must_say_what_it_is() -> None:
    assert problems_of({}) == ["apiVersion: is missing", "kind: is missing"]


def _numbers(kind: Any, path: str) -> Iterator[tuple[str, int | None]]:
    """The whole numbers among the fields of a section, and of those below it, each with its upper bound."""
    if kind is int or (get_origin(kind) is Annotated and get_args(kind)[0] is int):
        yield path, None if kind is int else get_args(kind)[1].le
    elif isinstance(kind, type) and issubclass(kind, Struct):
        for field in msgspec.structs.fields(kind):
            yield from _numbers(field.type, f"{path}.{field.encode_name}")
    else:
        for part in get_args(kind):
            yield from _numbers(part, path)


def test_every_number_of_the_settings_has_an_upper_bound() -> None:
    """One beyond 64 bits is no number of anything, and fails far from the field that has it."""
    numbers = dict(_numbers(Settings, "settings"))
    assert len(numbers) > 20
    assert [path for path, most in numbers.items() if most is None] == []


def test_many_problems_are_reported_in_part() -> None:
    document = HEAD | {f"k{number}": 1 for number in range(100_000)}
    problems = problems_of(document)
    assert len(problems) == 101
    assert problems[-1] == "and 99900 more problems"


def test_every_problem_is_reported_not_only_the_first() -> None:
    document = HEAD | {"mode": "offlaod", "server": {"maxInFlight": 0, "bindAdress": ":1"}, "answers": 5}
    assert problems_of(document) == [
        "mode: expected offload or augment, got 'offlaod'",
        "server.maxInFlight: expected int >= 1",
        'server.bindAdress: unknown field, did you mean "bindAddress"?',
        "answers: expected object, got int",
    ]


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("kind", "Extender", "expected ExtenderConfiguration, got 'Extender'"),
        ("surprise", 1, "unknown field"),
        ("logging.level", "loud", "expected debug or info or warning or error, got 'loud'"),
        ("server.maxBodyBytes", "lots", 'expected a size such as "32Mi", "500k" or "4096", got "lots"'),
        ("server.maxBodyBytes", True, 'expected a size such as "32Mi", got bool'),
        ("server.maxBodyBytes", 0, "must be more than zero"),
        ("server.requestTimeout", 5, 'expected a duration such as "15s", got int'),
        ("server.requestTimeout", "-5s", 'expected a duration such as "15s", "1m30s" or "250ms", got "-5s"'),
        ("server.requestTimeout", "0s", "must be more than zero"),
        ("server.requestTimeout", f"{'9' * 400}h", "longer than 2562047h, the longest duration"),
        ("server.maxBodyBytes", 2**70, "expected a size from 0 to 8 EiB"),
        ("server.maxBodyBytes", f"{'9' * 5000}Gi", "expected a size from 0 to 8 EiB"),
        ("server.maxInFlight", 2**70, "expected int <= 2147483647"),
        ("server.onDeadline", "drop", "expected error or pass, got 'drop'"),
        ("kube.onStale", "ignore", "expected error or pass, got 'ignore'"),
        ("server.paths.filter", "filter", 'expected a path such as "/filter", got "filter"'),
        ("server.paths.filter", "/livez", '"/livez" is taken'),
        ("server.paths.preempt", "/filter", '"/filter" is taken'),
        ("kube.watch.watchList", "yes", "expected bool, got str"),
        ("kube.watch.inactivityTimeout", "0", "must be more than zero"),
        ("kube.watch.backoff.max", "1ms", 'must not be less than initial, "800ms"'),
        ("rules.interPodAffinity.hardPodAffinityWeight", 101, "expected int <= 100"),
        ("rules.interPodAffinity.hardPodAffinityWeight", 1.5, "expected int, got float"),
        ("rules.topologySpread.defaultingType", "None", "expected System or List, got 'None'"),
        ("answers.shortlist", -1, "expected int >= 0"),
        ("answers.names", "all", "expected one or shortlist, got 'all'"),
        ("answers.scores.nodeAffinity", 101, "expected int <= 100"),
        ("rules", 3, "expected object, got int"),
        ("quota.reach.consent.label", "a b", 'expected a label key such as "topology.kubernetes.io/zone", got "a b"'),
        ("rules.interPodAffinity", [], "expected object, got array"),
        ("assumedPods.expiry", "0s", "must be more than zero"),
        ("assumedPods.doubt", "0s", "must be more than zero"),
        ("server.tls", {"certFile": "a.crt"}, ".certFile: needs keyFile"),
        ("server.tls", {"keyFile": "a.key"}, ".keyFile: needs certFile"),
        ("server.tls", {"clientCAFile": "ca.crt"}, ".clientCAFile: needs certFile"),
        (
            "server.tls",
            {"certFile": "a.crt", "keyFile": "a.key", "clients": {"admin": ["me"]}},
            ".clients: needs clientCAFile",
        ),
        ("leaderElection", {"leaseDuration": "0s"}, ".leaseDuration: must be more than zero"),
        ("leaderElection", {"retryPeriod": "0s"}, ".retryPeriod: must be more than zero"),
        ("leaderElection", {"leaseDuration": "15500ms"}, ".leaseDuration: the Lease holds whole seconds only"),
        ("leaderElection", {"leaseDuration": "2s"}, '.leaseDuration: must be more than renewDeadline, "2.5s"'),
        ("leaderElection", {"renewDeadline": "600ms"}, '.renewDeadline: must be more than 1.2 × retryPeriod, "500ms"'),
        ("policies", {"webhook": {"timeout": "0s"}}, ".webhook.timeout: must be more than zero"),
        (
            "policies",
            {"webhook": {"timeout": "1500ms"}},
            ".webhook.timeout: the API server accepts whole seconds up to 30s",
        ),
        ("policies", {"webhook": {"clients": ["kube-apiserver"]}}, ".webhook.clients: needs clientCAFile"),
        (
            "policies",
            {"webhook": {"timeout": "31s"}},
            ".webhook.timeout: the API server accepts whole seconds up to 30s",
        ),
        (
            "policies",
            {"webhook": {"url": "http://10.0.0.7"}},
            '.webhook.url: expected a URL such as "https://10.0.0.7:9443", got "http://10.0.0.7"',
        ),
        (
            "policies",
            {"webhook": {"lifetime": "59s"}},
            ".webhook.lifetime: must be at least 1m, so that there is time for the steps of a rotation",
        ),
        (
            "policies",
            {"webhook": {"serviceNamespace": "a.b"}},
            '.webhook.serviceNamespace: "a.b" is no name of a namespace',
        ),
        ("policies", {"webhook": {"certificates": "files"}}, ".webhook.certFile: needed with certificates files"),
        ("policies", {"webhook": OWN_FILES}, ".webhook.certFile: not used with certificates own"),
        (
            "policies",
            {"webhook": {**OWN_FILES, "certificates": "cert-manager", "caFile": "/ca.crt"}},
            ".webhook.caFile: not used with certificates cert-manager",
        ),
        ("policies", {"exemptNamespaces": ["a/b"]}, '.exemptNamespaces: "a/b" is no name of a namespace'),
        (
            "policies",
            {"exemptions": {"labelIn": ["a/b"]}},
            '.exemptions.labelIn: "a/b" is no name of a namespace, and not "*"',
        ),
        ("policies", {"exemptions": {"daemonSetsBy": [""]}}, ".exemptions.daemonSetsBy: a user has no empty name"),
        (
            "policies",
            {"templates": {"Rollout": "/spec/template"}},
            '.templates: expected a kind such as "argoproj.io/v1alpha1/Rollout", got "Rollout"',
        ),
        (
            "policies",
            {"templates": {"a.io/v1/Rollout": "spec.template"}},
            '.templates: expected a path such as "/spec/template" for a.io/v1/Rollout, got "spec.template"',
        ),
        *((f"release.{name}", "0s", "must be more than zero") for name in ("reservation", "unasked", "expectation")),
        *(
            (
                "leaderElection.leaseName",
                name,
                f'expected the name of an object such as "placement-extender", got "{name}"',
            )
            for name in ("", "Extender", "-extender", "extender_1", "extender\n", "a..b")
        ),
        *(
            (
                "server.bindAddress",
                address,
                f'expected an address such as "127.0.0.1:8888" or "[::1]:8888", got "{address}"',
            )
            for address in ("127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "::1:80")
        ),
    ],
)
def test_a_wrong_value_is_rejected_with_its_path(path: str, value: object, problem: str) -> None:
    """A problem that begins with a dot is one of a field of the section."""
    expected = f"{path}{problem}" if problem.startswith(".") else f"{path}: {problem}"
    assert problems_of(nested(path, value)) == [expected]


SHADOW = {"mode": "augment", "shadow": True}
DEFAULTS = "rules.topologySpread.defaultConstraints"
RULES_OFF = {"interPodAffinity": {"enabled": False}, "topologySpread": {"enabled": False}}


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (spread(constraint(maxSkew=0)), f"{DEFAULTS}[0].maxSkew: expected int >= 1"),
        (spread({"maxSkew": 1, "topologyKey": "zone"}), f"{DEFAULTS}[0].whenUnsatisfiable: is missing"),
        (
            spread(constraint(labelSelector={})),
            f"{DEFAULTS}[0].labelSelector: must not be set, selectors are deduced for each pod",
        ),
        (spread(constraint(), constraint(maxSkew=2)), f"{DEFAULTS}[1]: zone with ScheduleAnyway is listed twice"),
        (
            spread(constraint(minDomains=2)),
            f"{DEFAULTS}[0].minDomains: may only be set with whenUnsatisfiable DoNotSchedule",
        ),
        (spread(constraint(), defaulting="System"), f"{DEFAULTS}: must be empty when defaultingType is System"),
        *(
            (
                spread(constraint(topologyKey=key)),
                f'{DEFAULTS}[0].topologyKey: expected a label key such as "topology.kubernetes.io/zone", got "{key}"',
            )
            for key in ("", "-zone", "example.com/", "a/b/c", "zone name", "zone\n", "a..b/zone")
        ),
        (
            {"mode": "augment", "answers": {"scoreScale": "inTree"}},
            "answers.scoreScale: inTree needs mode offload; in augment mode the plugins score too",
        ),
        ({"rules": RULES_OFF}, "rules: mode offload with both rules off leaves nothing to decide"),
        (
            {"quota": {"enabled": True}, "assumedPods": {"enabled": False}},
            "quota.enabled: needs assumedPods.enabled; else a pod would not count before it is seen bound",
        ),
        (
            {"schedulers": "many"} | {"placement": "cooperative"},
            "schedulers: many needs placement decisive; else the node of a pod is known too late",
        ),
        (
            {"schedulers": "many"} | {"assumedPods": {"enabled": False}},
            "schedulers: many needs assumedPods.enabled; else no scheduler knows what others place",
        ),
        (
            SHADOW | {"mode": "offload"},
            "shadow: needs mode augment; in mode offload the plugins that it compares with are disabled",
        ),
        (
            SHADOW | {"rules": {"topologySpread": {"enabled": True}}},
            "shadow: needs both rules off; a rule that rejects nodes cannot be compared",
        ),
        (
            SHADOW | {"assumedPods": {"enabled": False}},
            "shadow: needs assumedPods.enabled; else pods that are not bound yet look like differences",
        ),
    ],
)
def test_sections_that_do_not_go_together_are_rejected(document: dict[str, Any], problem: str) -> None:
    assert problems_of(HEAD | document) == [problem]


@pytest.mark.parametrize(
    ("address", "host", "port"), [("127.0.0.1:0", "127.0.0.1", 0), (":8888", "", 8888), ("[::1]:80", "::1", 80)]
)
def test_an_address_is_a_host_and_a_port(address: str, host: str, port: int) -> None:
    bound = parse_settings(nested("server.bindAddress", address)).server.bind_address
    assert (bound.host, bound.port) == (host, port)


def test_by_default_the_hand_over_is_due_before_the_lease_of_a_dead_leader_runs_out() -> None:
    """So that it adds nothing to the time in which no replica answers."""
    leading = Settings().leader_election
    assert leading.renew_deadline + leading.takeover_wait < leading.lease_duration


def test_a_lease_may_last_an_odd_number_of_seconds() -> None:
    assert parse_settings(nested("leaderElection", {"leaseDuration": "5s"})).leader_election.lease_duration == Duration(
        5
    )


def bounded_below(section: msgspec.inspect.StructType, path: str = "") -> Iterator[str]:
    """The paths of the whole numbers that have a least value."""
    for each in section.fields:
        here = f"{path}{each.encode_name}"
        if isinstance(each.type, msgspec.inspect.StructType):
            yield from bounded_below(each.type, f"{here}.")
        kinds = each.type.types if isinstance(each.type, msgspec.inspect.UnionType) else (each.type,)
        if any(isinstance(kind, msgspec.inspect.IntType) and kind.ge is not None for kind in kinds):
            yield here


def test_a_limit_may_be_one_but_not_zero_and_what_may_be_left_out_may_be_zero() -> None:
    section = msgspec.inspect.type_info(Settings)
    assert isinstance(section, msgspec.inspect.StructType)
    from_zero = {
        "rules.interPodAffinity.hardPodAffinityWeight",
        "answers.shortlist",
        "answers.scores.taintToleration",
        "answers.scores.nodeAffinity",
        "answers.scores.nodeResourcesFit",
        "answers.scores.nodeResourcesBalancedAllocation",
        "quota.reach.maxNamespaces.limit",
    }
    paths = list(bounded_below(section))
    assert from_zero < set(paths)
    for path in paths:
        least = 0 if path in from_zero else 1
        parse_settings(nested(path, least))
        assert problems_of(nested(path, least - 1)) == [f"{path}: expected int >= {least}"]


def test_several_schedulers_imply_decisive_placement_in_either_mode() -> None:
    read = [parse_settings(HEAD | {"schedulers": "many", "mode": mode}) for mode in ("offload", "augment")]
    assert [each.placement for each in read] == ["decisive", "decisive"]
