"""Injection: twice is as once, a changed policy leaves nothing of its former version, and what a user edits stays."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from extender.model.policies import INJECTED_ANNOTATION, Policy
from extender.verbs.admit.injection import Injection, InjectionOutcome
from extender.verbs.admit.json_edits import SpecFields
from extender.verbs.admit.pod_fields import Bounds
from extender.verbs.admit.term_product import AdmissionBudget
from tests.builders import REQUIRED, Json, read_pod
from tests.laws.cases import case, meets_its_case, times
from tests.laws.injecting import ALIKE, NODES, POLICIES, SPECS, agree
from tests.policies import kupid_policy, requiring
from tests.verbs.admit.reviewing import pod, reviewed, template_spec, verb, workload


def injected(spec: Json, policies: list[Policy], *, is_pod: bool = True) -> Json:
    fields = SpecFields(spec, Bounds(), AdmissionBudget())
    injection = Injection(fields, is_pod=is_pod)
    InjectionOutcome().apply(injection, policies)
    return fields.spec


def admitted(spec: Json) -> set[int]:
    """The nodes that the node selector and the required terms of a spec admit."""
    read = read_pod({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    matches = read.signature.node_affinity.matches
    return {number for number, labels in enumerate(NODES) if matches("n", labels)}


@given(SPECS, ALIKE, st.booleans())
def test_applying_policies_again_changes_nothing(spec: Json, policies: list[Policy], is_pod: bool) -> None:  # noqa: FBT001 (drawn)
    assume(agree(policies))
    once = injected(spec, policies, is_pod=is_pod)
    assert orjson.dumps(injected(once, policies, is_pod=is_pod)) == orjson.dumps(once)


@given(SPECS, POLICIES)
def test_nothing_of_the_spec_itself_is_changed(spec: Json, policies: list[Policy]) -> None:
    before = copy.deepcopy(spec)
    injected(spec, policies)
    assert spec == before


TERM_LISTS = st.lists(
    st.lists(st.tuples(st.sampled_from(["zone", "disk", "pool"]), st.sampled_from(["a", "b", "1", "5"])), max_size=3),
    min_size=1,
    max_size=8,
)


def affinity_of(terms: list[list[tuple[str, str]]]) -> Json:
    """Required terms of In requirements; a term may be empty."""
    return requiring(*(
        {"matchExpressions": [{"key": k, "operator": "In", "values": [v]} for k, v in term]} if term else {}
        for term in terms
    ))  # fmt: skip


@meets_its_case
@given(TERM_LISTS, TERM_LISTS, TERM_LISTS)
def test_any_number_of_terms_is_joined_once_and_admits_what_all_of_them_admit(one: Any, two: Any, three: Any) -> None:
    lists = (one, two, three)
    pod_terms, *others = ([term for term in each if term] for each in lists)
    case(pod_terms and all(others) and len(pod_terms) * len(others[0]) > 1)
    own, policies = affinity_of(lists[0]), [kupid_policy(affinity=affinity_of(each)) for each in lists[1:]]
    once = injected({"affinity": own}, policies)
    expected = set.intersection(*(admitted({"affinity": affinity_of(each)}) for each in lists))
    assert admitted(once) == expected
    assert orjson.dumps(injected(once, policies)) == orjson.dumps(once)


@meets_its_case
@given(TERM_LISTS, TERM_LISTS)
def test_own_terms_keep_their_order_and_stand_in_front_of_what_was_added(mine: Any, theirs: Any) -> None:
    before = affinity_of(mine)["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    its_terms = [term for term in theirs if term] or [[("zone", "a")]]
    found = injected({"affinity": affinity_of(mine)}, [kupid_policy(affinity=affinity_of(its_terms))])
    after = found["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    case(after != before)
    expressions = [term.get("matchExpressions", []) for term in before]
    prefixes = [
        next((n for n, own in enumerate(expressions) if term.get("matchExpressions", [])[: len(own)] == own), -1)
        for term in after
    ]
    assert -1 not in prefixes


@times(2)
@given(SPECS, POLICIES, POLICIES)
def test_a_changed_policy_leaves_an_object_as_if_only_its_new_version_had_been(
    spec: Json, before: list[Policy], after: list[Policy]
) -> None:
    original = workload(spec=spec)
    first = reviewed(verb(*before), original).obj
    assert reviewed(verb(*after), first, "UPDATE", old=first).obj == reviewed(verb(*after), original).obj


@times(2)
@given(SPECS, POLICIES)
def test_deleted_policies_leave_the_object_as_it_was(spec: Json, policies: list[Policy]) -> None:
    original = workload(spec=spec)
    first = reviewed(verb(*policies), original).obj
    assert reviewed(verb(), first, "UPDATE", old=first).obj == original


@given(SPECS, POLICIES)
def test_an_update_that_changes_nothing_gets_no_patch(spec: Json, policies: list[Policy]) -> None:
    """So scaling or pausing a workload never rolls it out anew."""
    first = reviewed(verb(*policies), workload(spec=spec)).obj
    assert reviewed(verb(*policies), first, "UPDATE", old=first).patch == []


@given(SPECS, POLICIES)
def test_a_pod_that_is_requested_again_gets_no_further_patch(spec: Json, policies: list[Policy]) -> None:
    first = reviewed(verb(*policies), pod(spec)).obj
    assert reviewed(verb(*policies), first).patch == []


@times(2)
@given(SPECS, POLICIES)
def test_what_a_user_adds_after_an_injection_stays_when_the_policies_go(spec: Json, policies: list[Policy]) -> None:
    extra = {"key": "rack", "operator": "In", "values": ["r1"]}
    edited = reviewed(verb(*policies), workload(spec=spec)).obj
    _edit(template_spec(edited), extra)
    left = template_spec(reviewed(verb(), edited, "UPDATE", old=edited).obj)
    assert left["nodeSelector"]["user"] == "own"
    assert {"key": "user", "operator": "Exists"} in left["tolerations"]
    expected = copy.deepcopy(spec)
    _edit(expected, extra)
    assert left["nodeSelector"] == expected["nodeSelector"]
    assert Counter(map(str, left["tolerations"])) == Counter(map(str, expected["tolerations"]))
    assert _new_term(extra) in left["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def _new_term(extra: Json) -> Json:
    return {"matchExpressions": [extra]}


def _edit(spec: Json, extra: Json) -> None:
    """A user adds a label, a toleration and a required term."""
    spec.setdefault("nodeSelector", {})["user"] = "own"
    spec.setdefault("tolerations", []).append({"key": "user", "operator": "Exists"})
    required = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {}).setdefault(REQUIRED, {})
    required.setdefault("nodeSelectorTerms", []).append(_new_term(extra))


@given(SPECS, POLICIES)
def test_a_pod_of_an_injected_template_needs_no_injection(spec: Json, policies: list[Policy]) -> None:
    """Policies with targets Both are injected once, not twice."""
    template = template_spec(reviewed(verb(*policies), workload(spec=spec)).obj)
    made = pod(template)
    assert reviewed(verb(*policies), made).obj == made
    assert INJECTED_ANNOTATION not in made["metadata"]


@meets_its_case
@given(TERM_LISTS, TERM_LISTS, st.booleans())
def test_terms_that_a_user_changes_after_an_injection_lose_what_was_added_and_nothing_else(
    own: Any,
    theirs: Any,
    is_longer: bool,  # noqa: FBT001 (drawn)
) -> None:
    """The user adds a term, or a requirement to each. Of terms that contain another one injection may have kept the shorter."""
    own = [term for term in own if term] or [[("zone", "a")]]
    added = [[(f"policy/{key}", value) for key, value in term] for term in theirs if term][: 1 if is_longer else None]
    extra = {"key": "rack", "operator": "In", "values": ["r1"]}
    first = verb(kupid_policy(affinity=affinity_of(added)) if added else kupid_policy())
    edited = reviewed(first, workload(spec={"affinity": affinity_of(own)})).obj
    terms = template_spec(edited)["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    case(bool(added) and len(terms) > 1)
    for each in terms if is_longer else ():
        each["matchExpressions"].append(extra)
    terms += [] if is_longer else [_new_term(extra)]
    left = template_spec(reviewed(verb(), edited, "UPDATE", old=edited).obj)["affinity"]["nodeAffinity"][REQUIRED]
    found = {frozenset((r["key"], *r["values"]) for r in t["matchExpressions"]) for t in left["nodeSelectorTerms"]}
    user = {("rack", "r1")}
    written = {frozenset(term) for term in own}
    shortest = {term for term in written if not any(other < term for other in written)}
    if is_longer:
        assert {term | user for term in shortest} <= found <= {term | user for term in written}
    else:
        assert shortest | {frozenset(user)} <= found <= written | {frozenset(user)}
