"""Single pods: by their names, one of each signature, and what the hard constraints of one count for a further pod like it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import structs

from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState
from extender.model.answers.pages import ConstraintsPage
from extender.model.objects import Pod, PodSignature
from extender.rules import catalog
from extender.rules.constraint_states import Steps
from extender.rules.frames import Frame, IndexFrame, WorstCaseFrame
from extender.settings.configuration import Settings
from extender.verbs.browse.paging import in_steps
from extender.verbs.effective_pod import effective_pod

MOST_DOMAINS: Final = 200
_REMEMBERED: Final = 256
_PODS_A_STEP: Final = 600  # at 0.3 µs: they are all over the memory


def constraints_page(pod: Pod, view: ClusterView, settings: Settings) -> Steps[ConstraintsPage]:
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


class PodFinder:
    """Finds pods by their names, and remembers those that it found last: who looks at a pod looks again."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._uids: dict[tuple[str, str], str] = {}

    def find(self, namespace: str, name: str) -> Steps[Pod | None]:
        """The pod of a name, None where there is none. O(1) where it was found before, else O(pods)."""
        known = self._view.pod(self._uids.pop((namespace, name), ""))
        if known is None or known.terminating:
            known = yield from find_pod(namespace, name, self._view)
        if known is not None:
            self._uids[namespace, name] = known.uid
            if len(self._uids) > _REMEMBERED:
                del self._uids[next(iter(self._uids))]
        return known


def find_pod(namespace: str, name: str, view: ClusterView) -> Steps[Pod | None]:
    """The pod of a name; where the watch still shows an earlier one, the one that is not leaving. O(pods).

    It looks at one node after the other: a list of all pods is visited by the garbage collector for as long as it exists.
    """
    found: list[Pod] = []
    for piece in in_steps(list(view.unplaced.values()), _PODS_A_STEP):
        found += (pod for pod in piece if pod.name == name and pod.signature.namespace == namespace)
        yield
    looked = 0
    for node in range(len(view.node_names)):
        here = view.pods_on(node) if node < len(view.node_names) else {}
        looked += len(here)
        found += [pod for pod in here.values() if pod.name == name and pod.signature.namespace == namespace]
        if looked >= _PODS_A_STEP:
            looked = 0
            yield
    shown = [pod for each in found if (pod := view.pod(each.uid)) is not None]  # as it is now, not as it is assumed
    return min(shown, key=lambda pod: (pod.terminating, bool(pod.node)), default=None)


def example_pods(signatures: Collection[PodSignature], view: ClusterView) -> Steps[Mapping[PodSignature, str]]:
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
