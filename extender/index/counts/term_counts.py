"""Owner groups: existing pods that carry an affinity term, per domain. They apply to incoming pods that the term selects.

Existing pods carry their own terms, and those that scheduling policies add: a pod that admission missed counts against
others as an injected one does. ``policy_terms`` tells what policies add to the pods of a signature. It is asked for each new
signature, and again by `recheck` after a change of policies, signature by signature.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from enum import Enum
from operator import attrgetter

from extender.index.counts.groups import CountGroup, GroupView, SignatureCounts
from extender.index.counts.selector_index import SelectorIndex
from extender.index.nodes.columns import NodeColumn
from extender.index.nodes.domains import KeyDomains
from extender.index.nodes.topology import Topology
from extender.index.objects.namespaces import Namespaces
from extender.model.bounded import shrink
from extender.model.constraints.labels import Labels
from extender.model.constraints.selectors import Requirement
from extender.model.constraints.terms import NO_AFFINITY, AffinityTerm, PodAffinity, by_names
from extender.model.objects import PodSignature

_KEY_OF = attrgetter("topology_key")
_KEY_OF_WEIGHTED = attrgetter("term.topology_key")


class TermRole(Enum):
    """The list of its owner's affinity that a term is in."""

    REQUIRED = "required affinity"
    REQUIRED_ANTI = "required anti-affinity"
    PREFERRED = "preferred affinity"
    PREFERRED_ANTI = "preferred anti-affinity"


class TermGroupView(GroupView):
    """What readers see of an `OwnerGroup`."""

    __slots__ = ("role", "term", "weight")
    role: TermRole
    term: AffinityTerm
    weight: int


class OwnerGroup(TermGroupView, CountGroup):
    """How many pods that carry a term are in each domain of its key. ``users`` counts their signatures.

    ``policy_users`` are those of them that policies add the term to. ``anchor`` is what the group is filed under while it is offered.
    """

    __slots__ = ("anchor", "policy_users")

    def __init__(self, topology: Topology, role: TermRole, term: AffinityTerm, weight: int) -> None:
        super().__init__(topology.acquire_key(term.topology_key))
        self.anchor: Requirement | None = None
        self.policy_users = 0
        self.role = role
        self.term = term
        self.weight = weight


_Term = tuple[TermRole, AffinityTerm, int]
PolicyTerms = Callable[[PodSignature], PodAffinity]


class TermCounts:
    """The groups of all affinity terms that existing pods carry.

    Groups are kept by topology key. A term over a key that no node carries has none: a group is made when the first
    node with the key appears, for the signatures in ``_dormant``. If the last such node disappears, the group stays with
    its signatures, but is no part of any compiled constraints. So a term over an invented key costs no other pod
    anything, and its own pod no more than the parsed term.

    ``inverse_version`` grows when an owner group begins or ends to be part of compiled constraints, ``carried_version``
    when `is_carried` may have become true of a key.

    Invariant: while the group of a term exists, each signature that carries the term is counted in it.
    """

    def __init__(
        self, topology: Topology, namespaces: Namespaces, policy_terms: PolicyTerms, *, reads_selectors: bool = True
    ) -> None:
        """``reads_selectors``: false where namespaceSelectors of terms are ignored (KEP-2249)."""
        self.inverse_version = 0
        self.carried_version = 0
        self._topology = topology
        self._namespaces = namespaces
        self._owned: dict[str, dict[_Term, OwnerGroup]] = {}
        self._owner_anchors: SelectorIndex[OwnerGroup] = SelectorIndex()
        self._dormant: dict[SignatureCounts, None] = {}
        self._policy_terms = policy_terms if reads_selectors else lambda signature: by_names(policy_terms(signature))
        self._reads_selectors = reads_selectors
        self._added: dict[SignatureCounts, PodAffinity] = {}
        self._groups_of_policies = 0

    def owned(self) -> Iterator[OwnerGroup]:
        """Every owner group, for the audit."""
        for groups in self._owned.values():
            yield from groups.values()

    def is_owned(self, group: OwnerGroup) -> bool:
        """Whether a group of `owned` is still kept."""
        return self._owned.get(group.key.key, {}).get((group.role, group.term, group.weight)) is group

    def is_offered(self, group: OwnerGroup) -> bool:
        """Whether constraints of pods that the term selects are compiled with the group: for the audit."""
        return self._owner_anchors.is_filed(group, group.anchor, _fixed(group.term))

    def signature_added(self, counts_of_signature: SignatureCounts) -> None:
        """Counts a new signature in the group of each term that its pods carry, twice where they carry a term twice."""
        added = self._policy_terms(counts_of_signature.signature)
        if not added.is_empty:
            self._added[counts_of_signature] = added
        for each, is_added in self._carried(counts_of_signature):
            self._count(counts_of_signature, each, is_added=is_added)

    def recheck(self, counts_of_signature: SignatureCounts) -> bool:
        """Corrects what policies add to the pods of a signature; False where it is as before. O(terms × nodes of the pods)."""
        old = self._added.get(counts_of_signature, NO_AFFINITY)
        new = self._policy_terms(counts_of_signature.signature)
        if new == old:
            return False
        for each in _terms_of(new):  # first, so that a group that stays is not dropped
            self._count(counts_of_signature, each, is_added=True)
        for each in _terms_of(old):
            group = self._find(each)
            if group is not None:
                counts_of_signature.count_in(group, -1)
                self._leave(each, group, is_added=True)
        if new.is_empty:
            del self._added[counts_of_signature]
            shrink(self._added)
        else:
            self._added[counts_of_signature] = new
        return True

    @property
    def has_policy_terms(self) -> bool:
        """Whether policies add a term to any pods that are counted."""
        return bool(self._added)

    def carried_terms(self, counts_of_signature: SignatureCounts) -> Iterator[_Term]:
        """Every term that counts for the pods of a signature: for the audit."""
        return (each for each, _ in self._carried(counts_of_signature))

    def _carried(self, counts_of_signature: SignatureCounts) -> Iterator[tuple[_Term, bool]]:
        """The same, each with whether a policy adds it."""
        own = counts_of_signature.signature.affinity
        for each in _terms_of(own if self._reads_selectors else by_names(own)):
            yield each, False
        added = self._added.get(counts_of_signature)
        for each in _terms_of(added) if added is not None else ():
            yield each, True

    def _count(self, counts_of_signature: SignatureCounts, each: _Term, *, is_added: bool) -> None:
        group = self._find(each)
        if group is None and not self._topology.is_carried(each[1].topology_key):
            self._dormant[counts_of_signature] = None
        else:
            self._join(counts_of_signature, group or self._own(each), is_added=is_added)

    def first_carried(self, keys: AbstractSet[str]) -> None:
        """Makes the groups of terms over keys that no node carried before. O(terms of the dormant signatures).

        Nodes rarely bring a new label key: 4 ms for 100,000 such terms. An index by key would take as much memory as they.
        """
        self.carried_version += 1
        made: set[OwnerGroup] = set()
        for counts_of_signature in [each for each in self._dormant if self._carries(each, keys)]:
            is_dormant = False
            for each, is_added in self._carried(counts_of_signature):
                group = self._find(each)
                if group is None and each[1].topology_key in keys:
                    group = self._own(each)
                    made.add(group)
                if group in made:  # a group that was there before, its key without a node, counts the signature already
                    self._join(counts_of_signature, group, is_added=is_added)
                is_dormant = is_dormant or group is None
            if not is_dormant:
                del self._dormant[counts_of_signature]

    def _find(self, each: _Term) -> OwnerGroup | None:
        groups = self._owned.get(each[1].topology_key)
        return None if groups is None else groups.get(each)

    def _carries(self, counts_of_signature: SignatureCounts, keys: AbstractSet[str]) -> bool:
        added = self._added.get(counts_of_signature, NO_AFFINITY)
        return _has_key(counts_of_signature.signature.affinity, keys) or _has_key(added, keys)

    def _join(self, counts_of_signature: SignatureCounts, group: OwnerGroup, *, is_added: bool) -> None:
        group.users += 1
        if is_added:
            group.policy_users += 1
            self._note_policy_users(group, 1)
        counts_of_signature.count_in(group)

    def _leave(self, each: _Term, group: OwnerGroup, *, is_added: bool) -> None:
        """A signature is counted in the group no more; the group is dropped with the last one."""
        group.users -= 1
        if is_added:
            group.policy_users -= 1
            self._note_policy_users(group, 0)
        if not group.users:
            self._disown(each, group)

    def _note_policy_users(self, group: OwnerGroup, first: int) -> None:
        """Where the group has its first user by a policy, or has lost its last one: see `selecting`."""
        if group.policy_users == first:
            self._groups_of_policies += 1 if first else -1
            self.inverse_version += 1

    def _own(self, each: _Term) -> OwnerGroup:
        group = OwnerGroup(self._topology, *each)
        self._owned.setdefault(group.key.key, {})[each] = group
        if group.key.filled:
            self._offer(group, 1)
        return group

    def _offer(self, group: OwnerGroup, sign: int) -> None:
        """Makes a group part of compiled constraints, or with ``sign`` -1 takes it back."""
        self.inverse_version += 1
        names = _fixed(group.term)
        if sign > 0:
            group.anchor = self._owner_anchors.anchor((group.term.selector,), names)
            self._owner_anchors.file(group, group.anchor, names)
        else:
            self._owner_anchors.discard(group, group.anchor, names)

    def occupancy_changed(self, column: NodeColumn) -> None:
        """Called when a column has got its first node or lost its last one. O(terms that pods carry over the key)."""
        if isinstance(column, KeyDomains):
            for group in self._owned.get(column.key, {}).values():
                self._offer(group, 1 if column.filled else -1)

    def signature_removed(self, counts_of_signature: SignatureCounts) -> None:
        """Takes out a signature without pods; the group of a term is dropped with the last signature that carries it."""
        self._dormant.pop(counts_of_signature, None)
        for each, is_added in self._carried(counts_of_signature):
            group = self._find(each)
            if group is not None:
                self._leave(each, group, is_added=is_added)
        if self._added.pop(counts_of_signature, None) is not None:
            shrink(self._added)

    def _disown(self, each: _Term, group: OwnerGroup) -> None:
        groups = self._owned[group.key.key]
        del groups[each]
        shrink(groups)
        if not groups:
            del self._owned[group.key.key]
            shrink(self._owned)
        if group.key.filled:
            self._offer(group, -1)
        self._topology.release_key(group.key)

    def lacks_group(self, each: _Term) -> bool:
        """Whether a term has no group, as no node carries its key: for the audit."""
        return self._find(each) is None and not self._topology.is_carried(each[1].topology_key)

    def selecting(
        self, signature: PodSignature, *, of_policies: bool = False, namespace_labels: Labels | None = None
    ) -> list[OwnerGroup]:
        """The owner groups whose term selects pods of this signature, in the order in which they were made.

        ``of_policies``: only those of terms that policies add to any pods. O(1) where there are none. ``namespace_labels``: as
        if the namespace had these labels.
        """
        if of_policies and not self._groups_of_policies:
            return []
        labels = self._namespaces.labels(signature.namespace) if namespace_labels is None else namespace_labels
        found = self._owner_anchors.candidates(signature.namespace, signature.labels)
        if of_policies:
            found = (group for group in found if group.policy_users)
        return [group for group in found if group.term.selects(signature.namespace, signature.labels, labels)]

    def statistics(self) -> dict[str, int]:
        """How many groups are kept."""
        return {"owner_groups": sum(1 for group in self.owned() if group.counts)}


def _fixed(term: AffinityTerm) -> tuple[str, ...] | None:
    return term.namespaces if term.namespace_selector is None else None


def _has_key(affinity: PodAffinity, keys: AbstractSet[str]) -> bool:
    """Whether a term is over any of the keys. O(terms), without a step of the interpreter for each."""
    disjoint = keys.isdisjoint
    return not (
        disjoint(map(_KEY_OF, affinity.required_anti))
        and disjoint(map(_KEY_OF, affinity.required))
        and disjoint(map(_KEY_OF_WEIGHTED, affinity.preferred))
        and disjoint(map(_KEY_OF_WEIGHTED, affinity.preferred_anti))
    )


def _terms_of(affinity: PodAffinity) -> Iterator[_Term]:
    for term in affinity.required:
        yield TermRole.REQUIRED, term, 1
    for term in affinity.required_anti:
        yield TermRole.REQUIRED_ANTI, term, 1
    for preferred in affinity.preferred:
        yield TermRole.PREFERRED, preferred.term, preferred.weight
    for preferred in affinity.preferred_anti:
        yield TermRole.PREFERRED_ANTI, preferred.term, preferred.weight
