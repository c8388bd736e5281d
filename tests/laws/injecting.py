"""Hypothesis makers of pod specs and policies that meet: few keys and values, so that they agree, overlap and contradict."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, Final

from hypothesis import strategies as st

from extender.model.policies import GROUP, KUPID_GROUP, ConflictPolicy, Policy
from tests.builders import PREFERRED, REQUIRED, Json
from tests.policies import policy

NODES: list[Json] = [
    {**({"zone": zone} if zone else {}), **({"disk": disk} if disk else {})}
    for zone in ("", "a", "b", "c")
    for disk in ("", "1", "5", "9")
]

REQUIREMENTS = st.one_of(
    st.builds(
        lambda key, operator, values: {"key": key, "operator": operator, "values": values},
        st.sampled_from(["zone", "disk"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["a", "b", "1", "5"]), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, operator: {"key": key, "operator": operator},
        st.sampled_from(["zone", "disk"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(lambda operator, value: {"key": "disk", "operator": operator, "values": [value]},
              st.sampled_from(["Gt", "Lt"]), st.sampled_from(["1", "5"])),
    st.builds(lambda name: {"key": "pool", "operator": "In", "values": [name]}, st.sampled_from("xyz")),
)  # fmt: skip
TERMS = st.lists(
    st.builds(lambda items: {"matchExpressions": items}, st.lists(REQUIREMENTS, min_size=1, max_size=3)),
    min_size=1,
    max_size=4,
)
EACH_TOLERATION: Final[list[Json]] = [
    {"key": key, **operator, **effect}
    for key in ("k", "l")
    for operator in ({}, {"operator": "Equal"}, {"operator": "Exists"})
    for effect in ({}, {"effect": "NoSchedule"})
]
TOLERATIONS: Final = [list(pair) for pair in combinations(EACH_TOLERATION, 2)] + [[each] for each in EACH_TOLERATION]
EACH_SPREAD: Final[list[Json]] = [
    {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    for key in ("zone", "host")
    for skew in (1, 2)
]
SPREADS: Final = [[each] for each in EACH_SPREAD] + [[one, two] for one in EACH_SPREAD[:2] for two in EACH_SPREAD[2:]]
EACH_POD_TERM: Final[list[Json]] = [{"topologyKey": key, "labelSelector": {}} for key in ("zone", "host")]
POD_TERMS: Final = [[], [], [EACH_POD_TERM[0]], [EACH_POD_TERM[1]], EACH_POD_TERM]
NODE_SELECTORS: Final[list[Json]] = [{"zone": "a"}, {"zone": "b"}, {"pool": "x"}, {"zone": "a", "pool": "y"}]


def _without_empty(value: Any) -> Any:
    """Without the optional parts that were drawn as absent."""
    return {name: each for name, each in value.items() if each is not None}


def _affinity(terms: list[Json] | None, near: list[Json], preferred: list[Json] | None) -> Json | None:
    node: Json = {} if terms is None else {REQUIRED: {"nodeSelectorTerms": terms}}
    if preferred:
        node[PREFERRED] = [{"weight": 3, "preference": each} for each in preferred]
    found: Json = {}
    if node:
        found["nodeAffinity"] = node
    if near:
        found["podAffinity"] = {REQUIRED: near}
    return found or None


def _scheduling_fields(names: list[str]) -> st.SearchStrategy[Json]:
    terms = st.one_of(st.none(), TERMS)
    return st.fixed_dictionaries({
        "affinity": st.builds(_affinity, terms, st.sampled_from(POD_TERMS), terms),
        "nodeSelector": st.sampled_from([None, None, *NODE_SELECTORS]),
        "tolerations": st.sampled_from([None, *TOLERATIONS]),
        "topologySpreadConstraints": st.sampled_from([None, None, *SPREADS]),
        "schedulerName": st.sampled_from([None, *names]),
        "priorityClassName": st.sampled_from([None, "low", "high"]),
    }).map(_without_empty)  # fmt: skip


SPECS = _scheduling_fields(["default-scheduler", "own"]).map(lambda spec: {"containers": [{"name": "c"}]} | spec)
DIRECTIVES = _scheduling_fields(["one", "two"])


def _policies(directives: list[Json], group: str, conflicts: tuple[str, ...], generation: int) -> list[Policy]:
    made = []
    for number, each in enumerate(directives):
        behaviour: Json = {"targets": "Both", "conflictPolicy": conflicts[number]}
        spec = each | ({} if group == KUPID_GROUP else behaviour)
        made.append(policy(f"p{number}", group=group, generation=generation, **spec))
    return made


CONFLICTS: Final = list(product(["KeepPod", "Override"], repeat=3))
SEVERAL: Final = st.one_of(
    st.tuples(DIRECTIVES),
    st.tuples(DIRECTIVES, DIRECTIVES),
    st.tuples(DIRECTIVES, DIRECTIVES, DIRECTIVES),
    st.just(()),
).map(list)


def _lists(conflicts: list[tuple[str, ...]]) -> st.SearchStrategy[list[Policy]]:
    return st.builds(
        _policies, SEVERAL, st.sampled_from([GROUP, KUPID_GROUP]), st.sampled_from(conflicts), st.integers(1, 3)
    )


POLICIES = _lists(CONFLICTS)
KEEPING = _lists([CONFLICTS[0]])
"""Policies that replace nothing."""
ALIKE = _lists([CONFLICTS[0], CONFLICTS[-1]])
"""Policies that all do the same where they contradict a pod."""


def agree(policies: list[Policy]) -> bool:
    """Whether some node could meet all that they require, or none overrides; else they draw a warning when they are written."""
    if not any(each.conflict_policy is ConflictPolicy.OVERRIDE for each in policies):
        return True
    values = product(["", *"abc15"], ["", *"ab159"], ["", *"xyz"])
    nodes = [
        {key: value for key, value in zip(("zone", "disk", "pool"), each, strict=True) if value} for each in values
    ]
    return any(all(one.directives.nodes.matches("n", labels) for one in policies) for labels in nodes)
