"""Single pods: by their names, one of each signature, and what the hard constraints of one count for a further pod like it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import structs

from extender.index.explain_view import ExplainView
from extender.model.explanations import ConstraintState
from extender.model.objects import Pod, PodSignature
from extender.model.pages import ConstraintsPage
from extender.rules import catalog
from extender.rules.constraint_states import Steps
from extender.rules.frames import Frame, IndexFrame, WorstCaseFrame
from extender.settings.configuration import Settings
from extender.verbs.browse.paging import in_steps
from extender.verbs.effective_pod import effective_pod

MOST_DOMAINS: Final = 200
_PODS_A_STEP: Final = 3000  # at 0.15 µs


def constraints_page(pod: Pod, view: ExplainView, settings: Settings) -> Steps[ConstraintsPage]:
    """The page, also of a pod that has a node. O(domains + nodes with a counted pod) for each constraint."""
    replica = effective_pod(structs.replace(pod, node=""), view, settings)
    compiled = view.compiled(replica.signature)
    frame: Frame = IndexFrame()
    frame = WorstCaseFrame(frame, view) if view.is_undetermined(compiled) else frame
    before = catalog.dependencies(replica, compiled, view)
    yield
    found: list[ConstraintState] = []
    for rule, part in catalog.active(compiled, view):
        found += yield from rule.constraint_states(part, view, frame, MOST_DOMAINS)
    enforced = replica.signature.enforced
    return ConstraintsPage(
        pod=pod.full_name,
        node=pod.node,
        constraints=tuple(found),
        policies=() if enforced is None else tuple(map(str, enforced.policies)),
        is_changed=catalog.dependencies(replica, compiled, view) != before,
    )


def find_pod(namespace: str, name: str, view: ExplainView) -> Steps[Pod | None]:
    """The pod of a name; the last one, where the watch still shows an earlier one. O(pods)."""
    found: Pod | None = None
    for piece in in_steps(list(view.pods.values()), _PODS_A_STEP):
        for pod in piece:
            if pod.name == name and pod.signature.namespace == namespace:
                found = pod
        yield
    return found


def example_pods(signatures: Collection[PodSignature], view: ExplainView) -> Steps[Mapping[PodSignature, str]]:
    """The name of a placed pod of each signature that has one. O(signatures + pods on one node for each of these)."""
    found: dict[PodSignature, str] = {}
    looked = 0
    for placed in view.placed(wanted=signatures.__contains__):
        if placed is None:
            yield
            continue
        for node in placed.nodes:
            here = view.pods_on(node)
            looked += len(here)
            pod = next((pod for pod in here.values() if placed.are(pod)), None)
            if pod is not None:
                found[placed.signature] = pod.name
                break
        if looked >= _PODS_A_STEP:
            looked = 0
            yield
    return found
