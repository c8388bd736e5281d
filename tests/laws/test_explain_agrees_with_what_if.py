"""Law: what explain offers places the pod in a what-if, and where a change of one kind helps in a what-if, explain offers one.

Each cluster has one cause for which the pod is rejected. Every single change of the kind that undoes it is given to what-if.
"""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Json
from tests.explaining import explained
from tests.laws.cases import case, meets_its_case
from tests.laws.observing import SYSTEM_DEFAULTS, Cluster, fresh
from tests.laws.offered_changes import KINDS, clusters, documents, node_of, unbound_pods
from tests.strategies import decoded, one_of

# -- every single change of a kind --------------------------------------------------------------------------------------


_EXAMPLES: Final = one_of(sorted(KINDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), clusters(kind), unbound_pods(kind))
)


@meets_its_case
@given(_EXAMPLES)
def test_every_change_that_explain_offers_places_the_pod_in_a_what_if(example: tuple[str, Cluster, Json]) -> None:
    kind, cluster, body = example
    offered = explained(fresh(cluster, SYSTEM_DEFAULTS), decoded("pods", body), SYSTEM_DEFAULTS).changes  # type: ignore[arg-type]
    case(kind in {each.kind for each in offered})
    for change in offered:
        assert node_of(cluster, body, *documents(change, cluster)), change


@meets_its_case
@given(_EXAMPLES)
def test_where_a_change_of_one_kind_helps_in_a_what_if_explain_offers_one(example: tuple[str, Cluster, Json]) -> None:
    kind, cluster, body = example
    is_rejected = not node_of(cluster, body, [])
    tried = [(each, node_of(cluster, body, [each])) for each in (KINDS[kind](cluster) if is_rejected else ())]
    # A change of one node may also let the pod pass on another one, by what that counts for; this is not searched.
    helpful = [each for each, node in tried if node and (each["kind"] != "Node" or each["metadata"]["name"] == node)]
    case(helpful)
    offered = explained(fresh(cluster, SYSTEM_DEFAULTS), decoded("pods", body), SYSTEM_DEFAULTS).changes  # type: ignore[arg-type]
    assert kind in {each.kind for each in offered}, helpful
