"""What it costs to judge a run, by counted operations, and that it tells how far it is."""

from __future__ import annotations

from typing import Any

import pytest

from extender.simulator.apiserver.store import Store
from extender.simulator.json_objects import JsonObject
from extender.simulator.oracle import violations as judge
from extender.simulator.oracle.journal import Journal
from extender.simulator.oracle.violations import violations
from tests.costs.measuring import Operations
from tests.simulator.plain import HOSTNAME, ZONE, affinity, namespace, node, pod, spread, term

WEB = {"app": "web"}
NODES = 12


def journal_of(decisions: int, **spec: Any) -> Journal:
    """A run that has placed so many pods of one workload on twelve nodes in turn."""
    store = Store()
    store.load([*(node(f"n{number}", f"z{number % 3}") for number in range(NODES)), namespace("default")])
    journal = Journal(store)
    for number in range(decisions):
        made = pod(f"p{number}", labels=WEB, **spec)
        made["metadata"]["uid"] = f"u{number}"
        journal.decided(float(number), float(number), f"u{number}", made, f"n{number % NODES}")
    return journal


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"topologySpreadConstraints": [spread(ZONE, skew=5, labels=WEB)]}, id="spread"),
        pytest.param({"affinity": affinity(term(HOSTNAME, app="web"))}, id="affinity"),
    ],
)
def test_a_decision_about_a_workload_costs_no_more_for_the_pods_that_it_has(spec: JsonObject) -> None:
    def cost(decisions: int) -> float:
        journal, meter = journal_of(decisions, **spec), Operations()
        with meter.running():
            begun = meter.now()
            violations(journal)
            return meter.now() - begun

    few, more, many = (cost(decisions) for decisions in (100, 200, 400))
    assert many - more < 2.2 * (more - few)


def test_a_long_judgement_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "PROGRESS_EVERY", 10)
    reported: list[int] = []
    violations(journal_of(25), progress=reported.append)
    assert reported == [10, 20]
