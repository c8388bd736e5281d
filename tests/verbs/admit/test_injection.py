"""What policies write into pods and templates: values, terms and fields, conflicts, records, and removal."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import orjson
import pytest

from extender.model.policies import INJECTED_ANNOTATION
from extender.settings.policies import Policies
from tests.builders import PREFERRED, REQUIRED, Json, read_pod
from tests.policies import expression, kupid_policy, node_term, policy, requiring
from tests.verbs.admit.directives import (
    DEFAULTED,
    DIRECTIVES,
    inject,
    lacks,
    node_affinity,
    pod_affinity,
    requiring_affinity,
    terms_of,
)
from tests.verbs.admit.reviewing import LABELS, WORKLOADS, pod, reviewed, template_spec, verb, workload

ZONE_A, ZONE_B = (node_term(expression("zone", "In", zone)) for zone in "ab")
POOL = node_term(expression("pool", "Exists"))
UNKNOWN: Json = {"nextYear": {"deep": [{"x": 1, "y": None}, True, 1.5]}}
FOREVER: Json = {"operator": "Exists"}
DEFAULT_TOLERATIONS = DEFAULTED["tolerations"]
SHORT = DEFAULT_TOLERATIONS[0] | {"tolerationSeconds": 9}
GATED: Json = {"schedulingGates": [{"name": "g"}]}
RACKS, POOLS = ([node_term(expression(key, "In", f"{n}")) for n in range(size)] for key, size in (("r", 5), ("p", 4)))
SOFT: Json = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, "labelSelector": {}}
ANTI_AFFINITY = {"topologyKey": "host", "labelSelector": {}, "namespaceSelector": {}, "matchLabelKeys": ["v"]}
EVERY_FIELD: Json = {
    "topologySpreadConstraints": [SOFT],
    "schedulingGates": [{"name": "example.com/wait"}],
    "priorityClassName": "high",
    "affinity": {"podAntiAffinity": {REQUIRED: [ANTI_AFFINITY]}},
}

# The spec of the pod, the policies in the order of their names, the spec that results, and the warnings in part.
INJECTED: dict[str, tuple[Json, list[Json], Json, list[str]]] = {
    "every directive": ({}, [EVERY_FIELD], EVERY_FIELD, []),
    "a later policy does not override an earlier one": (
        {}, [{"nodeName": "one"}, {"nodeName": "two", "conflictPolicy": "Override"}], {"nodeName": "one"},
        ["a policy that applies first has set this value"],
    ),
    "nor excludes its nodes": (
        {}, [{"nodeSelector": {"zone": "b"}}, {"affinity": requiring(ZONE_A), "conflictPolicy": "Override"}],
        {"nodeSelector": {"zone": "b"}}, ["affinity.nodeAffinity"],
    ),
    "a warning has both values": (
        {"nodeName": "one"}, [{"nodeName": "two"}], {"nodeName": "one"}, ['the pod has "one", the policy "two"'],
    ),
    "a long value is cut": (
        {"nodeName": "n" * 65}, [{"nodeName": "two"}], {"nodeName": "n" * 65},
        [f'the pod has "{"n" * 64}…", the policy "two"'],
    ),
    "a conflict leaves the other fields of the policy": (
        {"nodeSelector": {"zone": "b"}}, [{"nodeSelector": {"zone": "a", "disk": "ssd"}, "schedulerName": "ours"}],
        {"nodeSelector": {"zone": "b", "disk": "ssd"}, "schedulerName": "ours"}, ["nodeSelector[zone]"],
    ),
    "requirements that a node can match together": (
        {"affinity": requiring(node_term(expression("zone", "In", "a", "b")), ZONE_B)}, [{"affinity": requiring(ZONE_A)}],
        {"affinity": requiring(node_term(expression("zone", "In", "a", "b"), expression("zone", "In", "a")))}, [],
    ),
    # The API server rejects a pod with gates and a node name.
    "no node name for a gated pod": (GATED, [{"nodeName": "n"}], GATED, ["nodeName"]),
    "no gate for a pod with a node name": ({"nodeName": "n"}, [GATED], {"nodeName": "n"}, ["schedulingGates"]),
    "an empty term matches no node": (
        {"affinity": requiring({}, ZONE_A)}, [{"affinity": requiring(POOL)}],
        {"affinity": requiring({}, node_term(expression("zone", "In", "a"), expression("pool", "Exists")))}, [],
    ),
    "more terms than the cap": (
        {"affinity": requiring(*RACKS)}, [{"affinity": requiring(*POOLS), "max_terms": 19}],
        {"affinity": requiring(*RACKS)}, ["20 or more node selector terms, policies.maxTerms is 19"],
    ),
    "as many terms as the cap": (
        {"affinity": requiring(*RACKS)}, [{"affinity": requiring(*POOLS), "max_terms": 20}],
        {"affinity": requiring(*(node_term(*(term["matchExpressions"][0] for term in pair))
                                 for pair in itertools.product(RACKS, POOLS)))}, [],
    ),
    "defaults of the API server count as unset": (
        DEFAULTED, [{"schedulerName": "ours", "priorityClassName": "high", "nodeSelector": {"a": "b"}}],
        {"schedulerName": "ours", "tolerations": DEFAULT_TOLERATIONS, "priorityClassName": "high",
         "nodeSelector": {"a": "b"}}, [],
    ),
    # The API server computes both again after the webhook, and rejects a pod that has the values of the old class.
    "a new priority class removes priority and preemptionPolicy": (
        DEFAULTED, [{"priorityClassName": "high"}],
        {"schedulerName": "default-scheduler", "tolerations": DEFAULT_TOLERATIONS, "priorityClassName": "high"}, [],
    ),
    "a class that the pod has leaves its priority": (
        DEFAULTED | {"priorityClassName": "high", "priority": 7}, [{"priorityClassName": "high"}],
        DEFAULTED | {"priorityClassName": "high", "priority": 7}, [],
    ),
    # Both tolerations together would count as the shorter time.
    "a default toleration gives way to the policy's for the same taint": (
        DEFAULTED, [{"tolerations": [SHORT]}], DEFAULTED | {"tolerations": [DEFAULT_TOLERATIONS[1], SHORT]}, [],
    ),
    "and to one for every taint": (DEFAULTED, [{"tolerations": [FOREVER]}], DEFAULTED | {"tolerations": [FOREVER]}, []),
    "a toleration of the user stays": (
        {"tolerations": [SHORT]}, [{"tolerations": [FOREVER]}], {"tolerations": [SHORT, FOREVER]}, [],
    ),
    "a match without an effect": (UNKNOWN, [{}], UNKNOWN, []),
    "unknown fields of a policy's terms": (
        {"affinity": requiring(POOL)}, [{"affinity": requiring(ZONE_A | UNKNOWN)}],
        {"affinity": requiring(node_term(expression("pool", "Exists"), expression("zone", "In", "a")) | UNKNOWN)}, [],
    ),
    # The API server would reject the pod; the extender scores such a constraint.
    "minDomains of a soft constraint": ({}, [{"topologySpreadConstraints": [SOFT | {"minDomains": 3}]}], {}, []),
    **{
        f"a pod that has one of the schedulers: {name}": (
            {"schedulerName": name}, [{"schedulerNames": ["a", "b", "c"]}], {"schedulerName": name}, [],
        )
        for name in "abc"
    },
}  # fmt: skip


@pytest.mark.parametrize(("own", "specs", "expected", "warnings"), INJECTED.values(), ids=INJECTED)
def test_policies_are_injected(own: Json, specs: list[Json], expected: Json, warnings: list[str]) -> None:
    """A second review of the result changes nothing more."""
    settings = Policies(max_terms=max(spec.get("max_terms", 64) for spec in specs))
    fields = [{key: value for key, value in spec.items() if key != "max_terms"} for spec in specs]
    admit = verb(*(policy(f"p{at}", **spec) for at, spec in enumerate(fields)), settings=settings)
    found = reviewed(admit, pod(own))
    assert found.obj["spec"] == pod(expected)["spec"]
    assert len(found.warnings) == len(warnings)
    assert all(part in text for part, text in zip(warnings, found.warnings, strict=True))
    assert reviewed(admit, found.obj).patch == []


def record_of(obj: Json) -> Any:
    return orjson.loads(obj["metadata"]["annotations"][INJECTED_ANNOTATION])[""]


def matches(spec: Json, **labels: str) -> bool:
    """Whether the node affinity of a pod with this spec matches a node with these labels."""
    read = read_pod({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    return read.signature.node_affinity.matches("n", labels)


def test_the_cluster_wide_kind_wins_then_the_higher_priority_then_the_name() -> None:
    ranked = [
        policy("zz", priority=1, nodeName="first"),
        policy("y", nodeName="second"),
        policy("z", nodeName="third"),
        policy("z", "shop", priority=9, nodeName="fourth"),
        policy("a", "shop", nodeName="fifth"),
    ]
    for first in range(len(ranked)):
        for order in itertools.permutations(ranked[first:]):
            assert reviewed(verb(*order), pod()).obj["spec"]["nodeName"] == ranked[first].directives.node_name
    found = reviewed(verb(*ranked), pod()).obj
    assert [done["policy"] for done in record_of(found)["policies"]] == ["ClusterPodSchedulingPolicy/zz"]


SPREAD: Json = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


@pytest.mark.parametrize(
    ("own", "directed", "field"),
    [
        ({"nodeSelector": {"zone": "b"}}, {"nodeSelector": {"zone": "a"}}, "nodeSelector[zone]"),
        ({"affinity": requiring(ZONE_B)}, {"affinity": requiring(ZONE_A)}, "affinity.nodeAffinity"),
        ({"affinity": requiring(ZONE_B)}, {"nodeSelector": {"zone": "a"}}, "affinity.nodeAffinity"),
        ({"nodeSelector": {"zone": "b"}}, {"affinity": requiring(ZONE_A)}, "affinity.nodeAffinity"),
        (
            {"affinity": requiring(node_term(expression("cores", "Lt", "8")))},
            {"affinity": requiring(node_term(expression("cores", "Gt", "7")))},
            "affinity.nodeAffinity",
        ),
        (
            {"affinity": requiring(node_term(expression("gpu", "DoesNotExist")))},
            {"affinity": requiring(node_term(expression("gpu", "Exists")))},
            "affinity.nodeAffinity",
        ),
        ({"nodeName": "n2"}, {"nodeName": "n1"}, "nodeName"),
        ({"schedulerName": "own"}, {"schedulerName": "other"}, "schedulerName"),
        ({"priorityClassName": "low"}, {"priorityClassName": "high"}, "priorityClassName"),
        (
            {"topologySpreadConstraints": [SPREAD | {"maxSkew": 2}]},
            {"topologySpreadConstraints": [SPREAD | {"maxSkew": 1}]},
            "topologySpreadConstraints[zone, DoNotSchedule]",
        ),
    ],
)
def test_each_conflict_policy_does_what_it_says(own: Json, directed: Json, field: str) -> None:
    kept = reviewed(verb(policy(**directed, conflictPolicy="KeepPod")), pod(own))
    assert (kept.obj, len(kept.warnings), field in kept.warnings[0]) == (pod(own), 1, True)
    overridden = reviewed(verb(policy(**directed, conflictPolicy="Override")), pod(own)).obj["spec"]
    assert {name: overridden[name] for name in directed} == directed
    rejected = reviewed(verb(policy(**directed, conflictPolicy="Reject")), pod(own))
    assert (rejected.response["allowed"], rejected.response["status"]["code"]) == (False, 403)
    assert "ClusterPodSchedulingPolicy/policy" in rejected.message
    assert field in rejected.message


@pytest.mark.parametrize(
    ("own", "directed", "node", "selector"),
    [
        ({"nodeSelector": {"zone": "b", "disk": "ssd"}}, {"affinity": requiring(ZONE_A)}, {"zone": "a"}, {"disk": "ssd"}),
        ({"affinity": requiring(ZONE_B)}, {"nodeSelector": {"zone": "a"}}, {"zone": "a"}, {"zone": "a"}),
        (
            {"nodeSelector": {"disk": "ssd"}, "affinity": requiring(ZONE_B)},
            {"affinity": requiring(node_term(expression("zone", "In", "a"), expression("disk", "Exists")))},
            {"zone": "a"},
            {"disk": "ssd"},
        ),
        (
            {
                "nodeSelector": {"zone": "b", "disk": "ssd"},
                "affinity": requiring(
                    node_term(expression("zone", "Exists"), expression("disk", "In", "hdd")),
                    node_term(expression("zone", "In", "b"), expression("disk", "In", "ssd")),
                ),
            },
            {"nodeSelector": {"zone": "a"}},
            {"zone": "a"},
            {"zone": "a", "disk": "ssd"},
        ),
    ],
)  # fmt: skip
def test_an_override_takes_away_all_that_excludes_the_policy_s_nodes_and_no_more(
    own: Json, directed: Json, node: dict[str, str], selector: Json
) -> None:
    found = reviewed(verb(policy(**directed, conflictPolicy="Override")), pod(own)).obj["spec"]
    assert found["nodeSelector"] == selector
    assert matches(found, **node | {"disk": "ssd"})
    assert not matches(found, zone="b", disk="ssd")


def test_an_upper_bound_below_every_label_value_matches_no_node_by_itself() -> None:
    kept = reviewed(verb(policy(affinity=requiring(node_term(expression("cores", "Lt", "0"))))), pod())
    assert (kept.obj, "no node can match" in kept.warnings[0]) == (pod(), True)


@pytest.mark.parametrize("never", [[{}], [{}, node_term(expression("a", "Exists"), expression("a", "DoesNotExist"))]])
def test_terms_that_match_no_node_are_never_widened(never: list[Json]) -> None:
    """The API allows an empty term, and it matches nothing: neither in the pod nor in the policy is it replaced."""
    own = pod({"affinity": requiring(ZONE_A)})
    kept = reviewed(verb(policy(affinity=requiring(*never))), own)
    assert (kept.obj, "no node can match" in kept.warnings[0]) == (own, True)
    combined = reviewed(verb(kupid_policy(affinity=requiring(*never))), own).obj["spec"]
    replaced = reviewed(verb(policy(affinity=requiring(ZONE_A))), pod({"affinity": requiring({})})).obj["spec"]
    for spec in (combined, replaced):
        assert not matches(spec, zone="a")
        assert not matches(spec, zone="a", a="b")


def test_many_updates_leave_the_terms_of_the_first() -> None:
    terms = [node_term(expression("pool", "In", name)) for name in "abc"]
    admit = verb(policy(targets="Templates", affinity=requiring(*terms)))
    obj = reviewed(admit, workload(spec={"affinity": requiring(ZONE_A, ZONE_B)})).obj
    assert len(terms_of(template_spec(obj))) == 6
    for _ in range(5):
        found = reviewed(admit, obj, "UPDATE", old=obj)
        assert found.patch == []
        obj = found.obj


def test_default_tolerations_of_a_template_were_chosen_by_the_user() -> None:
    """The API server fills in none there."""
    admit = verb(policy(targets="Both", tolerations=[FOREVER]))
    found = template_spec(reviewed(admit, workload(spec={"tolerations": DEFAULT_TOLERATIONS})).obj)
    assert found["tolerations"][:2] == DEFAULT_TOLERATIONS


class TestRemovalAndChange:
    """An update subtracts what the former version of a policy left, and a deleted policy leaves nothing."""

    @pytest.mark.parametrize("kind", [kind for kind in WORKLOADS if kind != "Job"])
    def test_a_renamed_pool_replaces_the_old_one(self, kind: str) -> None:
        def version(generation: int, pool: str) -> Any:
            fields: Json = {"affinity": requiring(node_term(expression("pool", "In", pool)))}
            return policy(targets="Templates", generation=generation, tolerations=[{"key": pool}], **fields)

        first = reviewed(verb(version(1, "old")), workload(kind)).obj
        second = reviewed(verb(version(2, "new")), first, "UPDATE", old=first).obj
        assert terms_of(template_spec(second)) == [node_term(expression("pool", "In", "new"))]
        assert template_spec(second)["tolerations"] == [{"key": "new"}]
        assert '"generation":2' in second["metadata"]["annotations"][INJECTED_ANNOTATION]
        assert reviewed(verb(), second, "UPDATE", old=second).obj == workload(kind)

    def test_what_an_override_replaced_comes_back(self) -> None:
        own = workload(spec={"nodeSelector": {"zone": "b"}, "schedulerName": "default-scheduler"})
        override = policy(targets="Both", conflictPolicy="Override", nodeSelector={"zone": "a"}, schedulerName="ours")
        first = reviewed(verb(override), own).obj
        assert template_spec(first)["nodeSelector"] == {"zone": "a"}
        assert reviewed(verb(), first, "UPDATE", old=first).obj == own

    def test_pairs_that_an_override_removed_come_back_in_one_order(self) -> None:
        """So all replicas answer with the same patch."""
        pairs = dict.fromkeys("fbdace", "x")
        excluding = requiring(node_term(*(expression(key, "NotIn", "x") for key in pairs)))
        own = workload(spec={"nodeSelector": pairs})
        first = reviewed(verb(policy(targets="Both", conflictPolicy="Override", affinity=excluding)), own).obj
        assert not template_spec(first)["nodeSelector"]
        restored = template_spec(reviewed(verb(), first, "UPDATE", old=first).obj)["nodeSelector"]
        assert list(restored.items()) == sorted(pairs.items())

    def test_the_annotation_stands_on_the_workload_and_not_on_its_template(self) -> None:
        """On the template it would roll the workload out with every generation of a policy."""
        found = reviewed(verb(policy(targets="Both", nodeSelector={"a": "b"})), workload()).obj
        assert found["spec"]["template"]["metadata"] == {"labels": LABELS}
        second = reviewed(
            verb(policy(targets="Both", nodeSelector={"a": "b"}, generation=2)), found, "UPDATE", old=found
        )
        assert {step["path"].split("/")[1] for step in second.patch} == {"metadata"}

    @pytest.mark.parametrize(
        "text", ["", "{", "[]", '{"":3}', '{"/spec/template":{"policies":[{}]}}', '{"/spec/template":{"terms":{"after":[[9,{}]]}}}']
    )  # fmt: skip
    def test_an_annotation_of_another_form_is_replaced_and_not_followed(self, text: str) -> None:
        own = workload(spec={"affinity": requiring(ZONE_A)}, annotations={INJECTED_ANNOTATION: text, "other": "x"})
        found = reviewed(verb(policy(targets="Both", nodeSelector={"a": "b"})), own).obj
        assert template_spec(found)["affinity"] == requiring(ZONE_A)
        assert template_spec(found)["nodeSelector"] == {"a": "b"}
        assert found["metadata"]["annotations"]["other"] == "x"

    def test_a_forged_record_takes_nothing_from_a_pod(self) -> None:
        """A pod is created once, so its record is never subtracted: it cannot take out another webhook's work."""
        record = orjson.dumps({"": {"policies": [{"policy": "x", "nodeSelector": {"tenant": "a"}}]}}).decode()
        forged = pod({"nodeSelector": {"tenant": "a"}}, annotations={INJECTED_ANNOTATION: record})
        assert reviewed(verb(policy(schedulerName="s")), forged).obj["spec"]["nodeSelector"] == {"tenant": "a"}


def test_unknown_fields_at_every_level_survive() -> None:
    term = {**node_term({**expression("zone", "In", "a"), **UNKNOWN}), "matchSomething": [{"a": 1}]}
    spec: Json = {
        "containers": [{"name": "c", "resizePolicy": [{"resourceName": "cpu"}], **UNKNOWN}],
        "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
        "schedulingGates": [{"name": "theirs", **UNKNOWN}],
        "resourceClaims": [{"name": "gpu"}],
        "tolerations": [{"key": "k", **UNKNOWN}],
        "topologySpreadConstraints": [{"topologyKey": "host", "whenUnsatisfiable": "DoNotSchedule", **UNKNOWN}],
        "affinity": {
            "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term], **UNKNOWN}, **UNKNOWN},
            "podAffinity": {REQUIRED: [{"topologyKey": "zone", "matchLabelKeys": ["a"], **UNKNOWN}], **UNKNOWN},
            **UNKNOWN,
        },
        **UNKNOWN,
    }
    directed: Json = {
        "schedulingGates": [{"name": "ours"}],
        "tolerations": [{"key": "ours"}],
        "topologySpreadConstraints": [SPREAD | {"maxSkew": 1}],
        "affinity": {
            **requiring(POOL),
            "podAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": {}, "mismatchLabelKeys": ["b"]}]},
        },
        "nodeSelector": {"a": "b"},
    }
    for obj in (pod(spec) | UNKNOWN, workload(spec=spec) | UNKNOWN):
        obj["metadata"] |= UNKNOWN
        found = reviewed(verb(policy(targets="Both", **directed)), copy.deepcopy(obj))
        assert {step["op"] for step in found.patch} == {"add"}
        assert lacks(found.obj, obj) == []
        joined = terms_of(template_spec(found.obj))[0]
        assert joined["matchExpressions"] == [*term["matchExpressions"], expression("pool", "Exists")]


# What each directive of a policy of kupid's group does with nothing, a conflict, or something else.

CONTAINERS: Json = {"containers": [{"name": "c", "image": "i"}]}
EXISTING = DIRECTIVES | {"nodeName": {"nodeName": "old-node"}, "schedulerName": {"schedulerName": "old-scheduler"}}
EMPTY_FIELDS: Json = {"affinity": {}, "nodeSelector": {}, "tolerations": [], "schedulerName": ""}


@pytest.mark.parametrize("name", DIRECTIVES)
def test_a_directive_is_written_where_the_pod_has_no_value(name: str) -> None:
    directed = DIRECTIVES[name]
    assert inject(CONTAINERS, kupid_policy(**directed)) == CONTAINERS | directed
    assert inject(CONTAINERS | EXISTING[name], kupid_policy(**directed)) == CONTAINERS | EXISTING[name]
    assert inject(CONTAINERS | EXISTING[name], kupid_policy()) == CONTAINERS | EXISTING[name]
    others = {field: value for spec in DIRECTIVES.values() for field, value in spec.items() if field not in directed}
    for empty in ({}, EMPTY_FIELDS):
        result = inject(CONTAINERS | empty, kupid_policy(**others))
        assert all(result.get(field) == empty.get(field) for field in directed)
        assert inject(CONTAINERS | empty, kupid_policy()) == CONTAINERS | empty


def both(kind: str) -> Json:
    """The pod's terms in front of the policy's."""
    old, new = (pod_affinity(kind, prefix, weight)[kind] for prefix, weight in (("old", 10), ("new", 100)))
    return {"affinity": {kind: {name: [*old[name], *new[name]] for name in (PREFERRED, REQUIRED)}}}


OLD, NEW = (node_affinity(prefix)["nodeAffinity"] for prefix in ("old", "new"))
JOINED = {
    name: [*OLD[REQUIRED]["nodeSelectorTerms"][0][name], *NEW[REQUIRED]["nodeSelectorTerms"][0][name]]
    for name in ("matchExpressions", "matchFields")
}
OTHER: dict[str, tuple[Json, Json]] = {
    "pod affinity": ({"affinity": pod_affinity("podAffinity", "old", 10)}, both("podAffinity")),
    "pod anti-affinity": ({"affinity": pod_affinity("podAntiAffinity", "old", 10)}, both("podAntiAffinity")),
    "nodeSelector": ({"nodeSelector": {"a": "b"}}, {"nodeSelector": {"a": "b", "newKey": "newValue"}}),
    "tolerations": (
        {"tolerations": [{"key": "oldKey"}]},
        {"tolerations": [{"key": "oldKey"}, *DIRECTIVES["tolerations"]["tolerations"]]},
    ),
    "node affinity": (
        {"affinity": node_affinity("old")},
        {
            "affinity": {
                "nodeAffinity": {
                    PREFERRED: [*OLD[PREFERRED], *NEW[PREFERRED]],
                    REQUIRED: {"nodeSelectorTerms": [JOINED]},
                }
            }
        },
    ),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_values_stay_in_front_of_the_policy_s(name: str) -> None:
    existing, expected = OTHER[name]
    assert inject(CONTAINERS | existing, kupid_policy(**DIRECTIVES[name])) == CONTAINERS | expected


A, B, C, D, E = (expression(key, "Exists") for key in "abcde")
F: Json = {"key": "metadata.name", "operator": "In", "values": ["f"]}
OWN = [node_term(A, B), node_term(C)]
THEIRS = [node_term(D), node_term(E, fields=[F])]


@pytest.mark.parametrize(
    ("own", "directed", "expected"),
    [
        ({}, requiring_affinity(*THEIRS), requiring_affinity(*THEIRS)),
        (requiring_affinity(), requiring_affinity(*THEIRS), requiring_affinity(*THEIRS)),
        ({"affinity": {"nodeAffinity": {}}}, requiring_affinity(*THEIRS), requiring_affinity(*THEIRS)),
        (requiring_affinity(*OWN), {"affinity": {"nodeAffinity": {}}}, requiring_affinity(*OWN)),
        (requiring_affinity(), {}, requiring_affinity()),
        # A gated pod may be narrowed only by terms that keep its own requirements in front.
        (
            requiring_affinity(*OWN),
            requiring_affinity(*THEIRS),
            requiring_affinity(
                *(node_term(A, B, D), node_term(A, B, E, fields=[F]), node_term(C, D), node_term(C, E, fields=[F]))
            ),
        ),
    ],
)
def test_the_product_of_terms_has_a_term_for_each_pair(own: Json, directed: Json, expected: Json) -> None:
    assert inject(CONTAINERS | own, kupid_policy(**directed)) == CONTAINERS | expected
