"""Law: of the selectors of a namespace no more select one pod than `Overlaps` says, in whatever order they came and went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from extender.index.counts.overlaps import Overlaps
from extender.index.counts.selections import PodSelector
from extender.model.constraints.selectors import requirement, selector
from tests.laws.cases import case, meets_its_case

_KEYS = ("app", "tier", "env")
_VALUES = ("a", "b", "c")
_CLAUSES = st.one_of(
    st.builds(requirement, st.sampled_from(_KEYS), st.just("In"), st.sets(st.sampled_from(_VALUES), min_size=1)),
    st.builds(requirement, st.sampled_from(_KEYS), st.just("NotIn"), st.sets(st.sampled_from(_VALUES), min_size=1)),
    st.builds(requirement, st.sampled_from(_KEYS), st.just("Exists")),
)
_OF_WORKLOADS = st.builds(lambda value: requirement("app", "In", [value]), st.sampled_from(_VALUES))
_CLAUSE_LISTS = st.one_of(
    st.builds(lambda first, rest: [first, *rest], _OF_WORKLOADS, st.lists(_CLAUSES, max_size=2)), st.lists(_CLAUSES)
)
_SELECTORS = st.builds(lambda clauses: PodSelector(selector(clauses), ("ns",)), _CLAUSE_LISTS)
_CHANGES = st.lists(_SELECTORS, min_size=8, max_size=30)  # one that is there goes, one that is not comes
_PODS = st.lists(st.dictionaries(st.sampled_from(_KEYS), st.sampled_from(_VALUES)), min_size=1, max_size=5)


@meets_its_case
@given(_CHANGES, _PODS)
def test_no_pod_is_selected_by_more_selectors_than_overlap(
    changes: list[PodSelector], pods: list[dict[str, str]]
) -> None:
    overlaps, there, met = Overlaps(), set[PodSelector](), False
    for change in changes:
        added = overlaps.added_by([change])
        before = overlaps.most
        if change in there:
            assert added == 0
            overlaps.remove(change)
            there.remove(change)
        else:
            overlaps.add(change)
            there.add(change)
            assert overlaps.most == before + added
        assert overlaps.problems(there) == []
        selected = [sum(each.selects("ns", labels, None) for each in there) for labels in pods]
        assert max(selected) <= overlaps.most <= len(there)
        met = met or overlaps.most < len(there)
    case(met)
    for each in list(there):
        overlaps.remove(each)
    assert (bool(overlaps), overlaps.most, overlaps._keys) == (False, 0, {})
