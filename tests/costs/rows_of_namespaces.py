"""The rows of what the pods of one namespace ask for together: its budget."""

from __future__ import annotations

from collections.abc import Callable

from extender.simulator.json_objects import JsonObject
from tests.costs.building import (
    AFFINITY,
    NAMESPACE,
    SPEC,
    Most,
    Row,
    a_pod,
    a_preemptor,
    a_term,
    expressions,
    terms_of,
    texts,
)
from tests.costs.measuring import Play
from tests.simulator import plain
from tests.simulator.plain import HOSTNAME, ZONE

_PODS = 10  # that have the terms together: what pods cost by their number has rows of its own


def _limit(name: str) -> tuple[str, Most]:
    snake = "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
    return f"limits.perNamespace.{name}", lambda settings: int(getattr(settings.limits.per_namespace, snake))


def _shared(make: Callable[[int], JsonObject], when: str, *also: JsonObject) -> Callable[[int], Play]:
    """So many different terms of ten pods, each of which is asked about, and then other pods."""

    def play(n: int) -> Play:
        numbers = [range(n)[at::_PODS] for at in range(_PODS)]
        pods = [
            a_pod(f"of-{at}", affinity=terms_of("podAntiAffinity", when, [make(each) for each in some]))
            for at, some in enumerate(numbers)
            if some
        ]
        return Play([*pods, *also], requested=[*pods, *also])

    return play


def _reaching(at: int) -> JsonObject:
    return a_term({"matchExpressions": [{"key": f"x{at}", "operator": "DoesNotExist"}]}, HOSTNAME, namespaceSelector={})


def _workload(at: int) -> JsonObject:
    labels = {"app": "shop", "component": f"c{at}"}
    spreads = [plain.spread(key, skew=1000, labels=labels) for key in (ZONE, HOSTNAME)]
    return a_pod(f"of-{at}", labels=labels, topologySpreadConstraints=spreads)


def namespace_rows() -> list[Row]:
    def workloads(n: int) -> Play:
        pods = [_workload(at) for at in range(n)]
        return Play(pods, requested=pods)

    def steps(n: int) -> Play:
        pods = [
            a_pod(
                f"of-{at}",
                affinity=terms_of("podAntiAffinity", "required", [a_term({"matchExpressions": _exclusions(at, n)})]),
            )
            for at in range(max(1, n // _STEPS))
        ]
        return Play(pods, requested=pods)

    return [
        Row(
            "namespace: selectors of workloads that share a label",
            ("Pod[]", f"{SPEC}.topologySpreadConstraints[]"),
            *_limit("selectors"),
            NAMESPACE,
            workloads,
            measured=512,
        ),
        Row(
            "namespace: selectors that select all of its pods",
            (f"{AFFINITY}.podAntiAffinity.required[]",),
            *_limit("overlappingSelectors"),
            NAMESPACE,
            _shared(_reaching, "preferred"),
        ),
        Row(
            "namespace: terms that select the victims of a preemption",
            (f"{AFFINITY}.pod*.**.namespaceSelector.*",),
            *_limit("crossNamespaceTerms"),
            NAMESPACE,
            _shared(_reaching, "preferred", a_preemptor()),
        ),
        Row(
            "namespace: topology keys",
            (f"{AFFINITY}.pod*.**.topologyKey",),
            *_limit("topologyKeys"),
            NAMESPACE,
            _shared(lambda at: a_term(key=f"key-{at}"), "required"),
        ),
        Row(
            "namespace: steps of compiling",
            (f"{AFFINITY}.pod*.**.labelSelector.matchExpressions[]",),
            *_limit("compileSteps"),
            NAMESPACE,
            steps,
            measured=2**15,
        ),
    ]


_STEPS = 500


def _exclusions(at: int, n: int) -> list[JsonObject]:
    """As many steps as a pod can have, of a selector that one pod has."""
    found = expressions(min(n, _STEPS) // 2 - 1)
    return [{"key": "app", "operator": "In", "values": texts(1, f"app-{at}-")}, *found]
