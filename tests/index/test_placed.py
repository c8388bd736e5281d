"""The pods on nodes by signature, as pages and explanations read them: which, how many, and in steps."""

from __future__ import annotations

from extender.model.objects import PodSignature
from tests.builders import index_of, node, pod


def test_pods_are_counted_by_node_for_the_signatures_that_are_wanted() -> None:
    index = index_of(
        node("n1"),
        node("n2"),
        pod("web-0", on="n1", app="web"),
        pod("web-1", on="n1", app="web"),
        pod("web-2", on="n2", app="web"),
        pod("web-3", app="web"),
        pod("db", on="n1", app="db"),
    )
    index.assume(index.pods["uid-web-3"], ["n2"], 0.0)
    found = [each for each in index.view.placed(wanted=lambda signature: signature.labels["app"] == "web") if each]
    assert [(each.signature.labels, each.nodes) for each in found] == [
        ({"app": "web"}, {index.view.known["n1"]: 2, index.view.known["n2"]: 2})
    ]
    assert {each.signature.labels["app"] for each in index.view.placed() if each} == {"web", "db"}


def test_what_is_read_does_not_change_with_the_index() -> None:
    index = index_of(node("n1"), pod("web", on="n1", app="web"))
    (found,) = index.view.placed()
    index.delete(index.pods["uid-web"])
    assert found is not None
    assert dict(found.nodes) == {0: 1}


def test_a_step_is_shorter_where_signatures_are_wanted() -> None:
    """Those that are not cost a comparison, the others a copy."""
    index = index_of(node("n1"), *(pod(f"p{at}", on="n1", own=str(at)) for at in range(2000)))
    signatures: dict[bool, list[PodSignature]] = {False: [], True: list(index.view.pods_of)}
    pauses = {
        is_wanted: sum(each is None for each in index.view.placed(wanted=chosen.__contains__))
        for is_wanted, chosen in ((each, set(some)) for each, some in signatures.items())
    }
    assert pauses == {False: 5, True: 25}
