"""What the page of policies shows of each: what it directs, in words, and which pods it selects."""

from __future__ import annotations

from extender.model.answers.pages import PageOf
from extender.model.bounded import at_once
from extender.model.policies import Exempt, Policy, PolicyObject
from extender.verbs.browse.in_flight import policy_page
from tests.builders import index_of, matching, node, pod
from tests.policies import expression, node_term, policy, requiring

SOFT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3}


def directives(made: Policy) -> list[str]:
    index = index_of(PolicyObject(made), node("n1"), pod("web", on="n1", app="web"))
    (row,) = at_once(policy_page(PageOf(), index.view, Exempt(), lambda _: ())).policies
    assert (row.valid, row.matched, row.examples) == (True, 1, ("default/web",))
    return list(row.directives)


def test_each_field_that_a_policy_directs_is_reported() -> None:
    terms = requiring(*(node_term(expression("pool", "In", name)) for name in "ab"))
    tolerations = [{"key": "dedicated", "operator": "Exists"}]
    made = policy(
        podSelector=matching(app="web"), nodeSelector={"disk": "ssd"}, affinity=terms, tolerations=tolerations
    )
    assert directives(made) == ["nodeSelector disk=ssd", "nodes: 2 required terms", "tolerations: 1"]


def test_constraints_that_are_scored_and_what_is_directed_of_spread_are_reported() -> None:
    spread = [{"topologyKey": "zone", "minDomains": 3}]
    made = policy(podSelector=matching(app="web"), topologySpreadConstraints=[SOFT], spread=spread)
    assert directives(made) == ["topologySpreadConstraints with minDomains, scored: 1", "spread zone: minDomains 3"]
