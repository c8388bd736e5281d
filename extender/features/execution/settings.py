"""The settings of constraints that hold while pods run: the section `execution`. Only if scheduling policies are enabled."""

from extender.model.documents import AtLeastOne, Section, require_positive
from extender.model.units import Duration


class Execution(Section, frozen=True):
    """How pods are moved by policies with `when: [Execution]`."""

    # False: nothing is watched while pods run, and no pod is moved.
    enabled: bool = True
    # Moves of all policies together that begin within a minute. Namespaces take turns.
    max_per_minute: AtLeastOne = 60
    # How long the place for the replacement of an evicted pod is kept after the pod has ended, while no replacement exists.
    claim_timeout: Duration = Duration(300)
    # How long a replacement may take to become ready. Until then its controller loses no other pod.
    replacement_timeout: Duration = Duration(600)

    def __post_init__(self) -> None:
        require_positive(self, "claim_timeout", "replacement_timeout")
