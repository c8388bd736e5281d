"""Each directive of the schema is injected, recorded and shown; a directive that is forgotten in one of these places fails here."""

from __future__ import annotations

from typing import Final

import pytest

from extender.model.answers.pages import PageOf
from extender.model.bounded import at_once
from extender.model.policies import SCALARS, Exempt, PolicyObject
from extender.verbs.admit.native import native_policy
from extender.verbs.browse.in_flight import policy_page
from extender.wire.policies.policy_schema import SPEC
from tests.builders import Json, index_of
from tests.deploy.policies.examples import FULL
from tests.policies import policy, policy_json
from tests.verbs.admit.reviewing import pod, reviewed, verb, workload
from tests.verbs.admit.test_policy_reviews import review_policy

# Which pods a policy selects, and how and when it acts. `execution` changes no pod: it acts while pods run.
OTHERS: Final = {
    *("podSelector", "namespaceSelector", "matchConditions", "when", "targets", "priority"),
    *("conflictPolicy", "failurePolicy", "mode", "release", "execution"),
}
VALUES: Final[Json] = FULL["spec"] | {"nodeName": "node-1", "schedulerName": "ours"}
DIRECTIVES: Final = sorted({field.name for field in SPEC.fields} - OTHERS)
OWN: Final[Json] = {
    "topologySpreadConstraints": [
        {"maxSkew": 5, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    ]
}


@pytest.mark.parametrize("name", DIRECTIVES)
def test_it_is_injected_into_a_pod(name: str) -> None:
    assert reviewed(verb(policy(**{name: VALUES[name]})), pod(OWN)).patch


@pytest.mark.parametrize("name", [name for name in DIRECTIVES if name != "spread"])  # which changes no template
def test_it_is_taken_out_of_a_template_when_the_policy_is_deleted(name: str) -> None:
    injected = reviewed(verb(policy(targets="Templates", **{name: VALUES[name]})), workload()).obj
    assert injected != workload()
    assert reviewed(verb(), injected, "UPDATE", old=injected).obj == workload()


@pytest.mark.parametrize("name", [name for name in DIRECTIVES if name != "spread"])
def test_its_record_is_trusted_while_the_policy_has_the_generation(name: str) -> None:
    """The old object lacks the annotation, so the record counts only if the policy injects the values in it."""
    admit = verb(policy(targets="Templates", **{name: VALUES[name]}))
    injected = reviewed(admit, workload()).obj
    assert injected != workload()
    assert reviewed(admit, injected, "UPDATE", old=workload()).patch == []


@pytest.mark.parametrize("name", DIRECTIVES)
def test_the_page_of_policies_shows_it(name: str) -> None:
    index = index_of(PolicyObject(policy(**{name: VALUES[name]})))
    (row,) = at_once(policy_page(PageOf(), index.view, Exempt(), lambda _: ())).policies
    assert row.directives


@pytest.mark.parametrize("name", DIRECTIVES)
def test_as_an_object_of_the_api_server_it_is_written_or_left_out_by_name(name: str) -> None:
    spec: Json = {"podSelector": {}, name: VALUES[name]}
    written = native_policy(policy(**spec), spec, Exempt())
    assert written.documents or any(f"spec.{name}" in text for text in written.left_out)


@pytest.mark.parametrize("name", SCALARS)
def test_two_values_of_a_scalar_contradict_each_other(name: str) -> None:
    mine: Json = {"name": "mine", name: "a"}
    its: Json = {"name": "its", name: "b"}
    found = review_policy(policy_json(**mine), policy(**its))
    assert any(text.startswith(f"spec.{name}: contradicts") for text in found.warnings)
