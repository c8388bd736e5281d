"""A rule that counts, as one file: at most so many pods of a team in a rack, whatever their namespace.

The team is a label of the pod. Every rule that counts has these three parts; preemption, requeue and the caches come with them:

- a `Counted` asks for groups from a pod's signature. The index shares the groups, keeps them true and drops them without knowing the rule;
- a filter is a list of clauses over these groups (`ClauseFilter`). A clause reads counts through the frame (`conflicting` where too many
  pods reject, `satisfying` where too few do) and never `group.counts`, or it misses pods that are assumed on one of several nodes;
- the `Rule` names the former in ``counted`` and prepares the latter, for pods for which something is counted.

A rule that rests on a minimum or a sum also overrides ``lasting_part`` and ``recounted_part``, as `TopologySpread` does; one that reads what the
index does not count says what its result depends on (``version``, ``pod_key``, ``unwatched_changes``, ``shared_places``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from extender.index.counts.compiled_constraints import CompiledConstraints, Counted, Counting
from extender.index.counts.groups import GroupView
from extender.index.counts.selections import PodSelector
from extender.index.nodes.columns import Column
from extender.index.view import ClusterView
from extender.model.answers.explanations import ConstraintState, TermReach
from extender.model.bounded import Steps
from extender.model.constraints.selectors import EVERYTHING, parse_selector
from extender.model.objects import Pod, PodSignature
from extender.model.rejections import Reason, Rejection
from extender.rules.constraint_states import MOST_DOMAINS, domain_states
from extender.rules.frames import Frame
from extender.rules.rule import ClauseFilter, Rule, blamed_pods
from extender.settings.rules import Rules

TEAM: Final = "team"
RACK: Final = "example.com/rack"
_NAME: Final = "TeamLimit"


@dataclass(frozen=True, slots=True)
class PodsOfTeam(Counted):
    """The pods of the pod's team by rack."""

    by_rack: GroupView

    @classmethod
    def count(cls, signature: PodSignature, counts: Counting, _settings: Rules) -> Self | None:
        """One group for all pods of the team; none for a pod without a team, or while no node has a rack."""
        team = signature.labels.get(TEAM)
        if team is None or not counts.is_carried(RACK):
            return None
        of_team = PodSelector(parse_selector({TEAM: team}), (), namespace_selector=EVERYTHING)
        return cls(*counts.pods((of_team,), RACK))

    @property
    def filter_groups(self) -> tuple[GroupView, ...]:
        """The groups that the filter reads."""
        return (self.by_rack,)


class BelowLimit(msgspec.Struct, frozen=True, gc=False):
    """The clause that the rack of a node has room for one more pod of the team; a node without a rack always has."""

    group: GroupView
    domains: Column
    counts: Mapping[int, int]
    most: int
    frame: Frame
    view: ClusterView
    reason: Reason = Reason.ANTI_AFFINITY

    def passing(self, nodes: Sequence[int]) -> Sequence[int]:
        """The verdict on many nodes in one pass."""
        domains, count_of, most = self.domains, self.counts.get, self.most
        return [node for node in nodes if count_of(domains[node], 0) < most]

    def rejection(self, position: int) -> Rejection:
        """The parts of the reason, which answers, events and explanations show."""
        domain = self.domains[position]
        return Rejection(
            _NAME,
            self.reason,
            topology_key=RACK,
            domain=self.frame.value(self.group.key, position),
            count=self.counts[domain],
            limit=self.most - 1,
            blamed=blamed_pods(self.group, domain, self.view),
        )


class TeamLimit(Rule):
    """At most ``most`` pods of a team in a rack."""

    name = _NAME
    counted = (PodsOfTeam,)
    counts_by_domain = True

    def __init__(self, most: int) -> None:
        self.most = most

    def prepare_filter(self, _pod: Pod, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> ClauseFilter:
        """One clause; asked for only if something is counted for the pod."""
        return ClauseFilter(tuple(self._clauses(compiled, view, frame)))

    def _clauses(self, compiled: CompiledConstraints, view: ClusterView, frame: Frame) -> Iterator[BelowLimit]:
        if found := compiled.get(PodsOfTeam):
            group = found.by_rack
            yield BelowLimit(group, frame.domains(group.key), frame.conflicting(group), self.most, frame, view)

    def constraint_states(
        self,
        _pod: Pod,
        compiled: CompiledConstraints,
        view: ClusterView,
        frame: Frame,
        most_domains: int = MOST_DOMAINS,
    ) -> Steps[Sequence[ConstraintState]]:
        """What an explanation shows of each domain; asked for as ``counts_by_domain`` is set."""
        states = []
        for clause in self._clauses(compiled, view, frame):
            key, counts = clause.group.key, clause.counts
            domains, more = yield from domain_states(
                clause.group, key.nodes_in, counts, view, self.most.__gt__, most_domains
            )
            team = f"{TEAM}={compiled.signature.labels[TEAM]}"
            reach = TermReach(why="every namespace", is_every=True)
            limit = self.most - 1
            states.append(
                ConstraintState(
                    _NAME, "teamLimit", key.key, team, reach, limit=limit, domains=domains, more_domains=more
                )
            )
        return states
