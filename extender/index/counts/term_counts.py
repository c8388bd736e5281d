"""Owner groups: existing pods that have an affinity term, per domain.

They apply to incoming pods that the term selects.

Existing pods have their own terms, and terms that policies add: a pod that admission missed counts like a pod with
injected terms. ``policy_terms`` returns what policies add to the pods of a signature. It is called for each new
signature, and by `recheck` for each signature after a change of policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from enum import Enum
from operator import attrgetter

from extender.index.counts.groups import CountGroup, GroupView, SignatureCounts
from extender.index.nodes.columns import NodeColumn
from extender.index.nodes.domains import KeyDomains
from extender.index.nodes.topology import Topology
from extender.index.objects.namespaces import Namespaces
from extender.index.objects.selector_index import SelectorIndex
from extender.model.bounded import shrink
from extender.model.constraints.labels import Labels
from extender.model.constraints.selectors import Requirement
from extender.model.constraints.terms import NO_AFFINITY, AffinityTerm, PodAffinity, by_names
from extender.model.objects import PodSignature

_KEY_OF = attrgetter("topology_key")
_KEY_OF_WEIGHTED = attrgetter("term.topology_key")


class TermRole(Enum):
    """The list of its owner's affinity in which a term stands."""

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
    """How many pods that have a term are in each domain of its key. ``users``: how many signatures have it.

    ``policy_users``: to how many of them policies add the term. ``anchor``: where the group is filed while it is
    offered.
    """

    __slots__ = ("anchor", "policy_users")

    def __init__(self, topology: Topology, role: TermRole, term: AffinityTerm, weight: int) -> None:
        super().__init__(topology.acquire_key(term.topology_key))
        self.anchor: Requirement | None = None
        self.policy_users = 0
        self.role = role
        self.term = term
        self.weight = weight


# The number is the weight: 1 for required terms. Equal preferred terms of other weights have groups of their own.
_Term = tuple[TermRole, AffinityTerm, int]
PolicyTerms = Callable[[PodSignature], PodAffinity]


class TermCounts:
    """The groups of all affinity terms that existing pods have.

    Groups are kept by topology key:

    1. A term over a key that no node has gets no group. It is made when the first node with the key appears, for the
       signatures in ``_dormant``.
    2. If the last such node disappears, the group stays with its signatures, but is part of no compiled constraints.
    3. So a term over an invented key costs other pods nothing, and its own pod only the parsed term.

    ``inverse_version`` grows when an owner group starts or stops to be part of compiled constraints,
    ``carried_version`` when `is_carried` may have become true for a key.

    Invariant: while the group of a term exists, each signature with the term is counted in it.
    """

    def __init__(
        self, topology: Topology, namespaces: Namespaces, policy_terms: PolicyTerms, *, reads_selectors: bool = True
    ) -> None:
        """``reads_selectors``: false if namespaceSelectors of terms are ignored (KEP-2249)."""
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
        """Every owner group; for the audit."""
        for groups in self._owned.values():
            yield from groups.values()

    def is_owned(self, group: OwnerGroup) -> bool:
        """Whether a group of `owned` is still kept."""
        return self._owned.get(group.key.key, {}).get((group.role, group.term, group.weight)) is group

    def is_offered(self, group: OwnerGroup) -> bool:
        """Whether the group is part of the constraints of pods that its term selects; for the audit."""
        return self._owner_anchors.is_filed(group, group.anchor, _fixed(group.term))

    def signature_added(self, counts_of_signature: SignatureCounts) -> None:
        """Counts a new signature in the group of each term of its pods, twice if they have a term twice."""
        added = self._policy_terms(counts_of_signature.signature)
        if not added.is_empty:
            self._added[counts_of_signature] = added
        for term, is_added in self._carried(counts_of_signature):
            self._count(counts_of_signature, term, is_added=is_added)

    def recheck(self, counts_of_signature: SignatureCounts) -> bool:
        """Corrects what policies add to a signature's pods; False if nothing changed. O(terms × nodes of the pods)."""
        old = self._added.get(counts_of_signature, NO_AFFINITY)
        new = self._policy_terms(counts_of_signature.signature)
        if new == old:
            return False
        for term in _terms_of(new):  # the new terms first, so that a common group is not dropped
            self._count(counts_of_signature, term, is_added=True)
        for term in _terms_of(old):
            group = self._find(term)
            if group is not None:
                counts_of_signature.count_in(group, -1)
                self._leave(term, group, is_added=True)
        if new.is_empty:
            del self._added[counts_of_signature]
            shrink(self._added)
        else:
            self._added[counts_of_signature] = new
        return True

    @property
    def has_policy_terms(self) -> bool:
        """Whether policies add a term to counted pods."""
        return bool(self._added)

    def carried_terms(self, counts_of_signature: SignatureCounts) -> Iterator[_Term]:
        """Every term that counts for the pods of a signature; for the audit."""
        return (term for term, _ in self._carried(counts_of_signature))

    def _carried(self, counts_of_signature: SignatureCounts) -> Iterator[tuple[_Term, bool]]:
        """Every term that counts for the pods of a signature, and whether a policy adds it."""
        own = counts_of_signature.signature.affinity
        for term in _terms_of(own if self._reads_selectors else by_names(own)):
            yield term, False
        added = self._added.get(counts_of_signature)
        for term in _terms_of(added) if added is not None else ():
            yield term, True

    def _count(self, counts_of_signature: SignatureCounts, term: _Term, *, is_added: bool) -> None:
        group = self._find(term)
        if group is None and not self._topology.is_carried(term[1].topology_key):
            self._dormant[counts_of_signature] = None
        else:
            self._join(counts_of_signature, group or self._own(term), is_added=is_added)

    def first_carried(self, keys: AbstractSet[str]) -> None:
        """Makes the groups of terms over keys that no node had before. O(terms of the dormant signatures).

        Nodes rarely bring a new label key. It takes 4 ms for 100,000 such terms; an index by key would take as much
        memory as they.
        """
        self.carried_version += 1
        made: set[OwnerGroup] = set()
        for counts_of_signature in [signature for signature in self._dormant if self._carries(signature, keys)]:
            is_dormant = False
            for term, is_added in self._carried(counts_of_signature):
                group = self._find(term)
                if group is None and term[1].topology_key in keys:
                    group = self._own(term)
                    made.add(group)
                if group in made:  # an older group, whose key lost its last node, counts the signature already
                    self._join(counts_of_signature, group, is_added=is_added)
                is_dormant = is_dormant or group is None
            if not is_dormant:
                del self._dormant[counts_of_signature]

    def _find(self, term: _Term) -> OwnerGroup | None:
        groups = self._owned.get(term[1].topology_key)
        return None if groups is None else groups.get(term)

    def _carries(self, counts_of_signature: SignatureCounts, keys: AbstractSet[str]) -> bool:
        added = self._added.get(counts_of_signature, NO_AFFINITY)
        return _has_key(counts_of_signature.signature.affinity, keys) or _has_key(added, keys)

    def _join(self, counts_of_signature: SignatureCounts, group: OwnerGroup, *, is_added: bool) -> None:
        group.users += 1
        if is_added:
            group.policy_users += 1
            self._note_policy_users(group, 1)
        counts_of_signature.count_in(group)

    def _leave(self, term: _Term, group: OwnerGroup, *, is_added: bool) -> None:
        """A signature is no longer counted in the group. The group is dropped with the last signature."""
        group.users -= 1
        if is_added:
            group.policy_users -= 1
            self._note_policy_users(group, 0)
        if not group.users:
            self._disown(term, group)

    def _note_policy_users(self, group: OwnerGroup, first: int) -> None:
        """After the group got its first user by a policy, or lost the last: see `selecting`."""
        if group.policy_users == first:
            self._groups_of_policies += 1 if first else -1
            self.inverse_version += 1

    def _own(self, term: _Term) -> OwnerGroup:
        group = OwnerGroup(self._topology, *term)
        self._owned.setdefault(group.key.key, {})[term] = group
        # Without a node that has the key the term can neither reject nor prefer a node, so other pods do not read it.
        if group.key.filled:
            self._offer(group, 1)
        return group

    def _offer(self, group: OwnerGroup, sign: int) -> None:
        """Makes a group part of compiled constraints, or with ``sign`` -1 removes it."""
        self.inverse_version += 1
        names = _fixed(group.term)
        if sign > 0:
            group.anchor = self._owner_anchors.anchor((group.term.selector,), names)
            self._owner_anchors.file(group, group.anchor, names)
        else:
            # With the anchor of the filing: `anchor` chooses by what is filed, and might choose another one now.
            self._owner_anchors.discard(group, group.anchor, names)

    def occupancy_changed(self, column: NodeColumn) -> None:
        """A column has got its first node or lost its last. O(terms of pods over the key)."""
        if isinstance(column, KeyDomains):
            for group in self._owned.get(column.key, {}).values():
                self._offer(group, 1 if column.filled else -1)

    def signature_removed(self, counts_of_signature: SignatureCounts) -> None:
        """Removes a signature without pods. The group of a term is dropped with the last signature that has it."""
        self._dormant.pop(counts_of_signature, None)
        # Without pods there is nothing to uncount: the groups only lose a user.
        for term, is_added in self._carried(counts_of_signature):
            group = self._find(term)
            if group is not None:
                self._leave(term, group, is_added=is_added)
        if self._added.pop(counts_of_signature, None) is not None:
            shrink(self._added)

    def _disown(self, term: _Term, group: OwnerGroup) -> None:
        groups = self._owned[group.key.key]
        del groups[term]
        shrink(groups)
        if not groups:
            del self._owned[group.key.key]
            shrink(self._owned)
        if group.key.filled:
            self._offer(group, -1)
        self._topology.release_key(group.key)

    def lacks_group(self, term: _Term) -> bool:
        """Whether a term has no group because no node has its key; for the audit."""
        return self._find(term) is None and not self._topology.is_carried(term[1].topology_key)

    def selecting(
        self, signature: PodSignature, *, of_policies: bool = False, namespace_labels: Labels | None = None
    ) -> list[OwnerGroup]:
        """The owner groups whose term selects pods of this signature, in the order in which they were made.

        ``of_policies``: only terms that policies add; O(1) if there are none. ``namespace_labels``: in place of the
        labels of the namespace.
        """
        if of_policies and not self._groups_of_policies:
            return []
        labels = self._namespaces.labels(signature.namespace) if namespace_labels is None else namespace_labels
        # Few of all terms, by the labels that their selectors require. Each candidate is then evaluated.
        groups = self._owner_anchors.candidates(signature.namespace, signature.labels)
        if of_policies:
            groups = (group for group in groups if group.policy_users)
        return [group for group in groups if group.term.selects(signature.namespace, signature.labels, labels)]

    def statistics(self) -> dict[str, int]:
        """How many groups are kept."""
        return {"owner_groups": sum(1 for group in self.owned() if group.counts)}


def _fixed(term: AffinityTerm) -> tuple[str, ...] | None:
    return term.namespaces if term.namespace_selector is None else None


def _has_key(affinity: PodAffinity, keys: AbstractSet[str]) -> bool:
    """Whether a term is over any of the keys. O(terms), in native code."""
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
