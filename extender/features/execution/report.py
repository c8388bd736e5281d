"""What `extender doctor` says of policies that watch constraints while pods run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from extender.doctor.facts import Facts, Finding
from extender.features.execution.directive import PAUSED_ANNOTATION, ExecutionMode, ExecutionSpec, WatchedConstraint
from extender.model.policies import Mode, Policy
from extender.model.units import agreeing, listed

_CHECK: Final = "moves"
_MOST_NAMED: Final = 10
_OF_THE_NODE: Final = frozenset({WatchedConstraint.NODE_AFFINITY})


def examine_moves(facts: Facts) -> Iterator[Finding]:
    """Findings about policies with `when: [Execution]`. O(policies)."""
    entries = facts.policies.policies if facts.policies is not None else ()
    policies = [entry.policy for entry in entries if isinstance(entry.policy, Policy)]
    watching = [(policy, policy.execution) for policy in policies if policy.execution is not None]
    if not watching or not facts.knows_settings:
        return
    if not facts.settings.execution.enabled:
        named = _named([policy for policy, _ in watching])
        problem = f"execution.enabled is false: {named} {_verb(watching, 'watches', 'watch')} no running pod"
        yield Finding("warning", _CHECK, problem, "set execution.enabled: true, or remove Execution from `when`")
        return
    if facts.settings.mode == "augment":
        yield from _augmented(watching)
    paused = [policy for policy, spec in watching if _evicts(policy, spec) and spec.paused]
    for policy in paused[:_MOST_NAMED]:
        where = f" -n {policy.key.namespace}" if policy.key.namespace else ""
        problem = f"the moves of {policy.key} are paused by the annotation {PAUSED_ANNOTATION}: its pods stay broken"
        yield Finding("info", _CHECK, problem, f"`extender moves resume {policy.key.name}{where}`")


def _augmented(watching: list[tuple[Policy, ExecutionSpec]]) -> Iterator[Finding]:
    """What cannot be promised beside kube-scheduler's plugins for affinity and spread."""
    others = [policy for policy, spec in watching if spec.constraints - _OF_THE_NODE]
    if others:
        problem = (
            f"of the constraints about other pods {_named(others)} can watch only what policies direct: in mode augment "
            "kube-scheduler's plugins count the constraints of the pods"
        )
        remedy = "set spec.execution.constraints: [NodeAffinity]; in mode offload all constraints are watched"
        yield Finding("warning", _CHECK, problem, remedy)
    moving = [policy for policy, spec in watching if _evicts(policy, spec)]
    if moving:
        problem = (
            f"{_named(moving)} may move a pod in vain: in mode augment kube-scheduler's plugins for affinity and spread may "
            "reject the node that is kept for its replacement"
        )
        remedy = "set spec.execution.mode: Report, and see `extender moves --plan`; in mode offload the extender decides them"
        yield Finding("warning", _CHECK, problem, remedy)


def _evicts(policy: Policy, spec: ExecutionSpec) -> bool:
    return policy.mode is Mode.ENFORCE and spec.mode is ExecutionMode.EVICT


def _named(policies: list[Policy]) -> str:
    return listed([str(policy.key) for policy in policies], most=_MOST_NAMED)


def _verb(watching: list[tuple[Policy, ExecutionSpec]], one: str, many: str) -> str:
    return agreeing(len(watching), one, many)
