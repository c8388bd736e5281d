"""The settings of the release of gated pods: the section `release` of the configuration document.

A file of its own beside `settings`, which includes the section.
"""

from typing import Annotated

from msgspec import Meta

from extender.model.documents import Section, require_positive
from extender.model.units import Duration

AtLeastOne = Annotated[int, Meta(ge=1)]


class Release(Section, frozen=True):
    """The release of groups of gated pods, where scheduling policies are enabled.

    ``patches_per_second`` and ``max_parallel_patches`` apply to all groups together. ``reservation``: how long room is kept
    for released pods that are not bound. ``expectation``: after so long a released pod that the watch still shows as gated is
    read. ``keep_empty``: how long the decision of a group without pods is kept. ``orphan_grace``: how long a pod keeps our
    gate when no policy releases it. A namespace has at most ``groups_per_namespace`` groups, and ``pods_per_namespace``
    pods in them, for which room is reserved at a time. With more than one group it has at most ``share_per_namespace`` of
    any resource that all nodes offer together.
    """

    enabled: bool = True
    max_parallel_patches: AtLeastOne = 8
    patches_per_second: AtLeastOne = 100
    reservation: Duration = Duration(300)
    expectation: Duration = Duration(60)
    keep_empty: Duration = Duration(300)
    orphan_grace: Duration = Duration(30)
    groups_per_namespace: AtLeastOne = 100
    pods_per_namespace: AtLeastOne = 5000
    share_per_namespace: Annotated[float, Meta(gt=0, le=1)] = 0.5

    def __post_init__(self) -> None:
        """Rejects times that end at once."""
        require_positive(self, "reservation", "expectation")
