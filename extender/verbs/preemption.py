"""The preempt verb: which of the scheduler's candidate nodes would really help the pod.

Advice only: the scheduler chose the victims with what it knows; we drop the candidates on which our own rules would
still refuse the pod once the victims are gone. Victims and PDB counts are passed on as they came.
"""

from __future__ import annotations

from extender.index.view import ClusterView, Question
from extender.model.objects import Pod
from extender.model.victims import Candidate
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.settings import Settings
from extender.wire.extender_v1 import PreemptionArgs


def advise_preemption(args: PreemptionArgs, view: ClusterView, _settings: Settings) -> list[Candidate]:
    """The candidates that help. A candidate without victims is dropped too: answered back, it fails the whole call."""
    question = view.question(args.pod.shape)
    return [each for each in args.candidates if each.victims and _helps(each, question, view)]


def _helps(candidate: Candidate, question: Question, view: ClusterView) -> bool:
    number = view.known.get(candidate.node)
    if number is None:
        return False
    with view.without(_victims(candidate, view)):
        filters = catalog.prepare_filters(question, IndexFrame())
        return filters.failure is None and filters.refusal(number) is None


def _victims(candidate: Candidate, view: ClusterView) -> list[Pod]:
    """The victims as the index knows them; one that is not there any more does not count already."""
    return [pod for victim in candidate.victims if (pod := view.pod(victim.uid)) is not None]
