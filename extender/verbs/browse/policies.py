"""The scheduling policies: when each acts, what it directs, and how many pods it selects now."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from extender.index.view import ClusterView
from extender.model.answers.pages import PageOf, PolicyPage, PolicyRow
from extender.model.objects import PodSignature
from extender.model.policies import EXEMPT_LABEL, InvalidPolicy, Policy, PolicyKey, Subject
from extender.rules.constraint_states import Steps
from extender.verbs.browse.paging import Page, in_steps
from extender.verbs.browse.single_pods import example_pods

_LOOKS_A_STEP: Final = 100  # at signatures and policies, at 2 µs
_ROWS_A_STEP: Final = 20
_EXAMPLES: Final = 3
_MOST_TEXTS: Final = 20
_LONGEST_TEXT: Final = 200


class _Selected:
    """The pods of one policy. ``signatures`` are the first of theirs."""

    __slots__ = ("pods", "signatures")

    def __init__(self) -> None:
        self.pods = 0
        self.signatures: list[PodSignature] = []


def policy_page(asked: PageOf, view: ClusterView, exempt: Collection[str]) -> Steps[PolicyPage]:
    """The page. ``exempt``: namespaces to which no policy applies. O(policies + signatures × policies that may select them)."""
    page: Page[Policy | InvalidPolicy] = Page(asked.after, asked.limit)
    for piece in in_steps([*view.policies, *view.policies.invalid()], _LOOKS_A_STEP):
        for policy in piece:
            if asked.namespace in ("", policy.key.namespace):
                page.add(str(policy.key), policy)
        yield
    shown = page.rows()
    selected = yield from _selected({policy.key for policy in shown}, view, frozenset(exempt))
    wanted = {signature for each in selected.values() for signature in each.signatures}
    names = yield from example_pods(wanted, view)
    rows: list[PolicyRow] = []
    for some in in_steps(shown, _ROWS_A_STEP):
        for policy in some:
            found = selected.get(policy.key)
            examples = [] if found is None else [(each, names.get(each, "")) for each in found.signatures]
            texts = tuple(f"{each.namespace}/{name}" for each, name in examples if name)
            rows.append(_row(policy, 0 if found is None else found.pods, texts))
        yield
    return PolicyPage(policies=tuple(rows), more=page.more, next=page.next)


def _selected(
    keys: Collection[PolicyKey], view: ClusterView, exempt: Collection[str]
) -> Steps[dict[PolicyKey, _Selected]]:
    """What the policies of these keys select."""
    found: dict[PolicyKey, _Selected] = {}
    looked = 0
    for signature in list(view.pods_of) if len(view.policies) else ():
        pods = view.pods_of.get(signature)  # none where the last one has been deleted since
        subject = None if pods is None else _subject(signature, view, exempt)
        looked += 1
        for policy in () if subject is None else list(view.policies.candidates(subject)):
            looked += 1
            if policy.key in keys and subject is not None and policy.scope.selects(subject):
                selected = found.setdefault(policy.key, _Selected())
                selected.pods += pods or 0
                if len(selected.signatures) < _EXAMPLES:
                    selected.signatures.append(signature)
        if looked >= _LOOKS_A_STEP:
            looked = 0
            yield
    return found


def _subject(signature: PodSignature, view: ClusterView, exempt: Collection[str]) -> Subject | None:
    """What policies are asked about a pod; None where it is exempt from all of them."""
    if signature.namespace in exempt or signature.labels.get(EXEMPT_LABEL) == "true":
        return None
    return Subject(
        signature.namespace,
        signature.labels,
        view.namespace_labels(signature.namespace),
        signature.owner_kind,
        signature.service_account,
        signature.priority_class,
    )


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
        directives=tuple(text[:_LONGEST_TEXT] for text, _ in zip(_texts(policy), range(_MOST_TEXTS), strict=False)),
        examples=examples,
    )


def _texts(policy: Policy) -> Iterator[str]:
    """What the policy directs, in short."""
    directives, release = policy.directives, policy.release
    yield from (f"nodeSelector {key}={value}" for key, value in sorted(directives.node_selector.items()))
    if directives.required_node_terms is not None:
        yield f"nodes: {len(directives.required_node_terms)} required terms"
    yield from (f"{path}: {len(items)}" for path, items in sorted(directives.lists.items()) if items)
    if directives.soft_min_domains:
        yield f"topologySpreadConstraints with minDomains, scored: {len(directives.soft_min_domains)}"
    for field, names in (
        ("nodeName", (directives.node_name,)),
        ("schedulerName", directives.scheduler_names),
        ("priorityClassName", (directives.priority_class,)),
        ("schedulingGates", directives.scheduling_gates),
    ):
        if any(names):
            yield f"{field} {', '.join(names)}"
    if release is not None:
        yield f"pods are released together, {release.mode} within {' and '.join(release.topology)}"
