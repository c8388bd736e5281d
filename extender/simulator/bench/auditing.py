"""The index recounted after the bench."""

from msgspec import Struct

from extender.index.audit import audit
from extender.index.cluster import ClusterIndex

_GROUPS = ("term_groups", "inverse_groups", "spread_groups")


class Audit(Struct, frozen=True):
    """Every difference that was found, and how many groups were recounted."""

    drift: tuple[str, ...]
    groups: int


def recount(index: ClusterIndex) -> Audit:
    """Everything: 3 s with 150,000 pods and 4,000 groups."""
    sizes = index.statistics()
    return Audit(tuple(audit(index)), sum(sizes[name] for name in _GROUPS))
