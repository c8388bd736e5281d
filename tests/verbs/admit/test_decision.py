"""The admission verb with input that an API server should not send, or seldom does: an answer is always due."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.model.policies import INJECTED_ANNOTATION, FailurePolicy, InvalidPolicy, PolicyKey
from extender.model.units import ByteSize
from extender.settings.limits import ConstraintLimits
from extender.settings.policies import Policies
from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.verbs.admit import term_product
from extender.verbs.admit.reviews import short_warnings
from extender.verbs.admit.term_product import OPERATIONS
from extender.wire.policies.policies_v1 import read_policy
from tests.builders import Json, matching
from tests.policies import expression, node_term, policy, policy_json, requiring
from tests.verbs.admit.reviewing import LABELS, patch_of, pod, review, reviewed, verb, workload

EVERYTHING = policy(
    targets="Both",
    nodeName="n",
    schedulerName="s",
    priorityClassName="high",
    nodeSelector={"a": "b"},
    tolerations=[{"key": "k"}],
    affinity=requiring(node_term(expression("zone", "Exists"))),
    topologySpreadConstraints=[{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}],
)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (None, "expected an AdmissionReview"),
        ([], "expected an AdmissionReview"),
        ({}, "expected admission.k8s.io/v1 AdmissionReview"),
        (review(pod()) | {"apiVersion": "admission.k8s.io/v1beta1"}, "v1beta1"),
        (review(pod()) | {"request": None}, "request: is missing"),
        (review(pod(), uid=None), "request.uid: is missing"),
        (review(pod(), uid=7), "request.uid: is missing"),
        (review(None), "request.object: is missing"),
        (review("pod"), "request.object: expected an object"),
        (review(pod(), kind="Pod"), "request.kind: expected an object"),
        (review(pod() | {"metadata": []}), "request.object.metadata: expected an object"),
    ],
)
def test_a_malformed_review_gets_an_answer_that_names_the_field(body: Any, says: str) -> None:
    found = verb(EVERYTHING).admit(body)
    assert found.result == "malformed"
    assert found.review["response"]["allowed"] is False
    assert found.review["response"]["status"]["code"] == 400
    assert says in found.review["response"]["status"]["message"]


def test_an_unknown_kind_is_admitted_and_says_why() -> None:
    found = reviewed(verb(EVERYTHING), pod(), kind={"group": "example.com", "version": "v1", "kind": "Thing"})
    assert found.response["allowed"] is True
    assert "example.com/v1/Thing has no pod template" in found.response["auditAnnotations"]["skipped"]


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", "Exists", "default-scheduler"]),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from(["a", "key", "name", "spec", "labels"]), below, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS = (
    *("affinity", "nodeSelector", "tolerations", "topologySpreadConstraints", "schedulingGates", "nodeName"),
    *("schedulerName", "priorityClassName", "serviceAccountName", "containers"),
)
AFFINITIES = st.builds(
    lambda junk, below, terms: {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": below}}
    if terms is None
    else {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}, "podAffinity": junk},
    JUNK,
    JUNK,
    st.none() | st.lists(JUNK, max_size=3) | st.lists(st.builds(lambda each: {"matchExpressions": each}, JUNK), max_size=2),
)  # fmt: skip
SPECS = st.builds(
    lambda fields, affinity: fields | ({} if affinity is None else {"affinity": affinity}),
    st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=4),
    st.none() | AFFINITIES,
)


@given(SPECS, st.dictionaries(st.sampled_from(["labels", "annotations", "ownerReferences", "name"]), JUNK, max_size=3))
def test_whatever_stands_in_an_object_it_is_answered_and_a_patch_applies(spec: Json, metadata: Json) -> None:
    for obj, operation in (
        (pod(spec) | {"metadata": {"labels": LABELS} | metadata}, "CREATE"),
        (workload(spec=spec), "UPDATE"),
    ):
        response = verb(EVERYTHING).decide(review(obj, operation))["response"]
        apply_patch(obj, patch_of(response), JSON)
        assert response["allowed"] is True
        assert all("no policy is applied" not in text for text in response.get("warnings", ()))


@given(JUNK, JUNK)
def test_whatever_the_request_is_it_is_answered(body: Any, request: Any) -> None:
    admit = verb(EVERYTHING, policy("strict", failurePolicy="Fail"))
    for sent in (
        body,
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request},
        review(body),
    ):
        assert isinstance(admit.decide(sent)["response"]["allowed"], bool)
    for name in review(pod())["request"]:
        assert isinstance(admit.decide(review(pod(), **{name: request}))["response"]["allowed"], bool)


class Unreadable(dict[str, Any]):
    """An object that fails at every look: what no JSON does, for the last resort."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError("cannot be read")


@pytest.mark.parametrize(("failure_policy", "is_allowed"), [("Ignore", True), ("Fail", False)])
def test_an_object_that_fails_as_a_whole_honours_the_failure_policy_of_policies_in_reach(
    failure_policy: str, *, is_allowed: bool
) -> None:
    admit = verb(policy("far", "bank", failurePolicy="Fail"), policy(failurePolicy=failure_policy))
    found = admit.admit(review({"kind": "Pod", "metadata": {}, "spec": Unreadable()}))
    assert found.review["response"]["allowed"] is is_allowed
    assert "cannot be read" in found.review["response"]["auditAnnotations"]["errors"]


def test_what_an_annotation_cannot_record_is_injected_and_says_so() -> None:
    """An object may have 256 KiB of annotations in all."""
    limits = ConstraintLimits(pod_bytes=ByteSize(10**6), selector_values=10**6)
    values = [f"value-{number:05}" for number in range(12_000)]
    affinity = requiring(node_term(expression("a", "In", *values)))
    for failure_policy in ("Ignore", "Fail"):
        large = read_policy(policy_json(affinity=affinity, failurePolicy=failure_policy), limits)
        found = reviewed(verb(large, limits=limits), pod())
        assert found.obj["spec"]["affinity"] == affinity
        assert INJECTED_ANNOTATION not in found.obj["metadata"].get("annotations", {})
        assert "131072 are allowed" in found.response["auditAnnotations"]["errors"]
        assert "131072 are allowed" in found.warnings[0]


def test_an_object_of_three_megabytes_costs_no_more_than_its_scheduling_fields() -> None:
    big = pod(
        {
            "containers": [
                {"name": f"c{number}", "env": [{"name": "x" * 200, "value": "y" * 800}]} for number in range(3000)
            ]
        }
    )
    found = reviewed(verb(EVERYTHING), big)
    assert len(orjson.dumps(big)) > 3_000_000
    assert len(orjson.dumps(found.patch)) < 3000


@pytest.mark.parametrize(
    "spec",
    [
        lambda: {"tolerations": [{"key": f"k{number}", "operator": "Exists"} for number in range(50_000)]},
        lambda: {"affinity": requiring(*(node_term(expression("a", "In", f"v{at}")) for at in range(30_000)))},
        lambda: {"affinity": requiring(node_term(expression("a", "In", *(f"v{at}" for at in range(100_000)))))},
        lambda: {"nodeSelector": {f"k{number}": "v" for number in range(50_000)}},
    ],
    ids=["tolerations", "terms", "values", "labels"],
)
def test_a_pod_above_a_limit_is_left_as_it_is_with_the_number(spec: Callable[[], Json]) -> None:
    found = reviewed(verb(EVERYTHING), pod(spec()))
    assert found.patch == []
    assert "in the pod, limits." in found.warnings[0]


def test_policies_together_do_not_push_a_pod_over_a_limit() -> None:
    many = [policy(f"p{number}", tolerations=[{"key": f"k{number}-{n}"} for n in range(4)]) for number in range(3)]
    found = reviewed(verb(*many, limits=ConstraintLimits(tolerations=10)), pod({"tolerations": [{"key": "own"}]}))
    assert len(found.obj["spec"]["tolerations"]) == 9
    assert found.warnings == [
        "ClusterPodSchedulingPolicy/p2: tolerations: 13 in the pod, limits.tolerations is 10 (Ignore)"
    ]


def test_patches_are_base64_of_a_json_patch_and_equal_questions_get_equal_answers() -> None:
    one, two = (verb(EVERYTHING).decide(review(pod())) for _ in range(2))
    assert one == two
    assert one["response"]["patchType"] == "JSONPatch"
    assert orjson.loads(base64.b64decode(one["response"]["patch"]))[0]["op"] == "add"


def test_warnings_are_few_short_and_on_one_line() -> None:
    """The API server cuts one at 256 characters, and all of them at 4,096."""
    shown = short_warnings([f"policy {number}:\n{'x' * 500}" for number in range(100)] + ["policy 0:\n" + "x" * 500])
    assert all(len(text) <= 256 and "\n" not in text for text in shown)
    assert sum(map(len, shown)) <= 4096
    left_out = 100 - (len(shown) - 1)
    assert shown[-1] == f"{left_out} more warnings are left out"
    assert short_warnings(["a", "a", "b"]) == ["a", "b"]


def test_what_led_to_an_answer_is_reported_for_metrics() -> None:
    admit = verb(policy(nodeName="n"), invalid=[InvalidPolicy(PolicyKey("g", "", "bad"), ("x",), FailurePolicy.IGNORE)])
    found = admit.admit(review(pod(), dryRun=True))
    assert (found.result, found.kind, found.namespace, found.dry_run) == ("mutated", "v1/Pod", "shop", True)
    assert [(each.policy.key.name, each.fields()) for each in found.changes] == [("policy", ["nodeName"])]
    assert [key.name for key in found.failed] == ["bad"]
    assert admit.admit(review(policy_json(mode="Dry"))).result == "denied"
    assert verb().admit(review(pod())).result == "allowed"


def test_one_admission_joins_terms_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is left out is a conflict, and the terms that are made are bounded however many policies there are."""
    made: list[object] = []
    product = term_product._product

    def counting(mine: Any, other: Any) -> Any:
        made.append(None)
        return product(mine, other)

    monkeypatch.setattr(term_product, "_product", counting)
    policies = [
        policy(
            f"p{number:03}",
            affinity=requiring(*(node_term(expression(f"k{number}", "In", f"v{n}")) for n in range(60))),
        )
        for number in range(200)
    ]
    own = pod({"affinity": requiring(*(node_term(expression("rack", "In", f"r{n}")) for n in range(60)))})
    found = verb(*policies, settings=Policies(max_per_pod=200)).admit(review(own))
    spent = [each for each in found.changes if each.conflicts]
    assert len(spent) == 200
    assert "policies.maxTerms is 64" in spent[0].conflicts[0].message
    assert "too many comparisons" in spent[-1].conflicts[0].message
    assert 0 < len(made) <= OPERATIONS // 2


def test_a_pod_that_is_asked_about_again_keeps_the_record_of_the_first_time() -> None:
    """Another webhook may have changed its labels in between, so that one more policy selects it."""
    one, two = policy("one", nodeName="n"), policy("two", podSelector=matching(tier="web"), tolerations=[{"key": "k"}])
    first = reviewed(verb(one, two), pod()).obj
    first["metadata"]["labels"] = LABELS | {"tier": "web"}
    second = reviewed(verb(one, two), first).obj
    (record,) = orjson.loads(second["metadata"]["annotations"][INJECTED_ANNOTATION]).values()
    assert [each["policy"].rpartition("/")[2] for each in record["policies"]] == ["one", "two"]
    assert record["created"] == ["tolerations"]


def test_the_annotation_names_policy_and_generation() -> None:
    found = reviewed(verb(policy(generation=7, nodeName="n")), pod()).obj
    record = orjson.loads(found["metadata"]["annotations"][INJECTED_ANNOTATION])
    assert record == {
        "": {
            "policies": [{"policy": "ClusterPodSchedulingPolicy/policy", "generation": 7, "fields": {"nodeName": "n"}}]
        }
    }
