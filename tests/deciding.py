"""The filter verb as tests ask it: a fresh one for each question, with or without preemption."""

from __future__ import annotations

import msgspec

from extender.index.view import ClusterView
from extender.model.objects import Pod
from extender.model.preemption import PreemptionPlan
from extender.settings.configuration import Settings
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs, FilterResult


class KeptPlans:
    """Accepts every plan and keeps it; carries out none."""

    def __init__(self) -> None:
        self.plans: list[PreemptionPlan] = []

    def submit(self, plan: PreemptionPlan) -> bool:
        """Always True."""
        self.plans.append(plan)
        return True

    def requeue(self, _pod: Pod, _node: str) -> None:
        """Does nothing."""


def without_preemption(settings: Settings) -> Settings:
    """The same settings with preemption off: the filter then answers from the rules alone."""
    off = msgspec.structs.replace(settings.preemption, mode="off")
    return msgspec.structs.replace(settings, preemption=off)


def filter_nodes(args: ExtenderArgs, view: ClusterView, settings: Settings, seed: int, avoid: str = "") -> FilterResult:
    """The answer of a filter verb that caches nothing yet and does not preempt."""
    return FilterVerb(view, without_preemption(settings)).decide(args, seed, avoid).result
