"""Names are checked before they go into a path."""

from collections.abc import Callable

import pytest

from extender.kube.calls import events_path
from extender.kube.effects import PodRef
from extender.kube.errors import Rejected
from extender.kube.writer import lease_path, pod_path

BAD = ["", ".", "..", "a/b", "../../nodes/n", "a?b", "a#b", "a%2fb", "a\nb", "A", "-a", "a" * 254, "ä", "a b", "\ud800"]


def test_the_path_of_a_pod() -> None:
    assert pod_path(PodRef("team-a", "web-1.x", "u")) == "/api/v1/namespaces/team-a/pods/web-1.x"


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_name_is_rejected_wherever_it_stands(name: str) -> None:
    paths: list[Callable[[], str]] = [
        lambda: pod_path(PodRef(name, "web", "u")),
        lambda: pod_path(PodRef("team-a", name, "u")),
        lambda: events_path(name),
        lambda: lease_path(name, "extender"),
        lambda: lease_path("team-a", name),
    ]
    for path in paths:
        with pytest.raises(Rejected, match="is no name of a"):
            path()
