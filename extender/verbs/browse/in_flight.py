"""Rows for preemptions in progress, for pod groups that are not bound completely, and for policies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from extender.index.view import ClusterView
from extender.model.answers.explanations import HeldGroup
from extender.model.answers.pages import (
    AmountRow,
    GroupRow,
    PageOf,
    PolicyDomainRow,
    PolicyPage,
    PolicyRow,
    PreemptionRow,
    VictimRow,
)
from extender.model.bounded import Steps
from extender.model.group_placements import GroupPlacement, PlacementStatus
from extender.model.objects import Pod, PodSignature
from extender.model.policies import Exempt, InvalidPolicy, Policy, PolicyKey
from extender.model.preemption import PreemptionPlan
from extender.model.release import DomainUse, GroupKey, NoRoom
from extender.model.resources import PODS, quantity_text
from extender.model.units import rfc3339
from extender.verbs.browse.pods import FirstRows, example_pods, in_steps
from extender.verbs.release.progress import GroupOverview

_MOST_VICTIMS: Final = 50
_LONGEST_TEXT: Final = 500


def preemption_row(plan: PreemptionPlan, state: str, seconds: float, now: datetime, view: ClusterView) -> PreemptionRow:
    """One preemption, ``seconds`` after its plan was accepted. O(victims)."""
    shown = plan.victims[:_MOST_VICTIMS]
    return PreemptionRow(
        pod=plan.preemptor.full_name,
        node=plan.node,
        state=state,
        since=rfc3339(now - timedelta(seconds=seconds)),
        priority=plan.preemptor.priority,
        victims=tuple(VictimRow(pod=victim.full_name, state=_victim_state(view.pod(victim.uid))) for victim in shown),
        more_victims=len(plan.victims) - len(shown),
        pdb_violations=plan.pdb_violations,
    )


def _victim_state(pod: Pod | None) -> str:
    if pod is None:
        return "gone"
    return "terminating" if pod.terminating else "running"


def large_group_overview(
    key: GroupKey, size: int, pods: int, released: int, bound: int, placement: GroupPlacement | None
) -> GroupOverview:
    """The overview of a group of thousands of pods, from its status alone: computing its next step would take milliseconds. O(1)."""
    status, levels = (PlacementStatus(), ()) if placement is None else (placement.status, placement.levels)
    text = status.message or "the leader has written no status of this group yet"
    return GroupOverview(key, status.phase, levels, size, pods, released, bound, None, 0, status.reason, text)


def group_row(group: GroupOverview) -> GroupRow:
    """The row of one pod group."""
    return GroupRow(
        policy=group.key.policy,
        namespace=group.key.namespace,
        key=group.key.value,
        state=group.phase,
        pods=group.pods,
        needed=group.size,
        gated=group.pods - group.released,
        released=group.released,
        bound=group.bound,
        domain=",".join(map(str, group.levels)),
        reason=group.reason,
        text=group.message[:_LONGEST_TEXT],
        since="" if group.since is None else rfc3339(group.since),
    )


def held_group(group: GroupOverview | None) -> HeldGroup | None:
    """The pod group as a part of the explanation of one of its pods."""
    if group is None:
        return None
    return HeldGroup(
        policy=group.key.policy,
        group=group.key.value,
        state=group.phase,
        domain=",".join(map(str, group.levels)),
        reason=group.reason,
        text=group.message[:_LONGEST_TEXT],
    )


# -- policies ---------------------------------------------------------------------------------------------------------

# The scheduling policies: when each acts, what it directs, and how many pods it selects now.

_LOOKS_A_STEP: Final = 100  # at signatures and policies, at 2 µs
_ROWS_A_STEP: Final = 20
_EXAMPLES: Final = 3
_MOST_DOMAINS: Final = 16
_MOST_TEXTS: Final = 20
_LONGEST_DIRECTIVE: Final = 200


class _Selected:
    """The pods that one policy selects: how many, and the first few signatures."""

    __slots__ = ("pods", "signatures")

    def __init__(self) -> None:
        self.pods = 0
        self.signatures: list[PodSignature] = []


def policy_page(
    page_of: PageOf, view: ClusterView, exempt: Exempt, uses: Callable[[Policy], Sequence[DomainUse]]
) -> Steps[PolicyPage]:
    """The page. ``exempt``: pods to which no policy applies. ``uses``: how much of its domains the pods of a policy use.

    O(policies + signatures × policies that may select them).
    """
    page: FirstRows[Policy | InvalidPolicy] = FirstRows(page_of.after, page_of.limit)
    for piece in in_steps([*view.policies, *view.policies.invalid()], _LOOKS_A_STEP):
        for policy in piece:
            if page_of.namespace in ("", policy.key.namespace):
                page.add(str(policy.key), policy)
        yield
    shown = page.rows()
    selected = yield from _selected({policy.key for policy in shown}, view, exempt)
    wanted = {signature for selection in selected.values() for signature in selection.signatures}
    names = yield from example_pods(wanted, view)
    rows: list[PolicyRow] = []
    for policies in in_steps(shown, _ROWS_A_STEP):
        for policy in policies:
            selection = selected.get(policy.key)
            examples = (
                []
                if selection is None
                else [(signature, names.get(signature, "")) for signature in selection.signatures]
            )
            texts = tuple(f"{signature.namespace}/{name}" for signature, name in examples if name)
            row = _row(policy, 0 if selection is None else selection.pods, texts)
            domains = [] if isinstance(policy, InvalidPolicy) else uses(policy)
            if domains:
                shown_domains = tuple(map(_domain_row, domains[:_MOST_DOMAINS]))
                row = replace(row, domains=shown_domains, more_domains=len(domains) - len(shown_domains))
            rows.append(row)
        yield
    return PolicyPage(policies=tuple(rows), more=page.more, next=page.next)


def _selected(keys: Collection[PolicyKey], view: ClusterView, exempt: Exempt) -> Steps[dict[PolicyKey, _Selected]]:
    """The pods that the policies of these keys select."""
    # By signature, not by pod: all pods of a signature are selected by the same policies.
    by_policy: dict[PolicyKey, _Selected] = {}
    looked = 0
    # A copy, because pods come and go between the steps.
    for signature in list(view.pods_of) if len(view.policies) else ():
        is_exempt = exempt.covers(signature.namespace, signature.labels)
        pods = 0 if is_exempt else view.pods_of.get(signature, 0)  # 0 where the last has been deleted
        subject = signature.subject(view.namespace_labels(signature.namespace))
        looked += 1
        for policy in list(view.policies.candidates(subject)) if pods else ():
            looked += 1
            if policy.key in keys and policy.scope.selects(subject):
                selected = by_policy.setdefault(policy.key, _Selected())
                selected.pods += pods
                if len(selected.signatures) < _EXAMPLES:
                    selected.signatures.append(signature)
        if looked >= _LOOKS_A_STEP:
            looked = 0
            yield
    return by_policy


def _row(policy: Policy | InvalidPolicy, matched: int, examples: tuple[str, ...]) -> PolicyRow:
    key, moments = policy.key, tuple(sorted(policy.when))
    kind = str(key).partition("/")[0]
    if isinstance(policy, InvalidPolicy):
        problem = "; ".join(policy.errors)
        return PolicyRow(
            kind=kind, namespace=key.namespace, name=key.name, valid=False, matched=0, moments=moments, problem=problem
        )
    return PolicyRow(
        kind=kind,
        namespace=key.namespace,
        name=key.name,
        valid=True,
        matched=matched,
        mode=policy.mode,
        moments=moments,
        priority=policy.priority,
        directives=tuple(
            text[:_LONGEST_DIRECTIVE] for text, _ in zip(_texts(policy), range(_MOST_TEXTS), strict=False)
        ),
        examples=examples,
    )


def _domain_row(use: DomainUse) -> PolicyDomainRow:
    names = [PODS, *sorted({*use.used, *use.quota} - {PODS})]
    amounts = tuple(
        AmountRow(
            resource=name,
            used=quantity_text(name, use.used.get(name, 0)),
            quota=quantity_text(name, use.quota[name]) if name in use.quota else "",
        )
        for name in names
    )
    return PolicyDomainRow(name=use.name, amounts=amounts, may_grow=use.may_grow)


def _texts(policy: Policy) -> Iterator[str]:
    directives, release = policy.directives, policy.release
    yield from (f"nodeSelector {key}={value}" for key, value in sorted(directives.node_selector.items()))
    if directives.required_node_terms is not None:
        yield f"nodes: {len(directives.required_node_terms)} required terms"
    yield from (f"{path}: {len(items)}" for path, items in sorted(directives.lists.items()) if items)
    if directives.soft_min_domains:
        yield f"topologySpreadConstraints with minDomains, scored: {len(directives.soft_min_domains)}"
    yield from (f"spread {directive.topology_key}: {', '.join(directive.texts())}" for directive in directives.spread)
    for field, names in (*directives.scalars.items(), ("schedulingGates", directives.scheduling_gates)):
        if names:
            yield f"{field} {', '.join(names)}"
    if release is not None:
        kind = "Preferred" if release.does(NoRoom.SEVERAL_DOMAINS) else "Required"
        yield f"pods are released together, {kind} within {' and '.join(release.topology)}"
    if policy.execution is not None:
        watched = ", ".join(sorted(map(str, policy.execution.constraints)))
        yield f"execution {policy.execution.mode}: {watched}"
