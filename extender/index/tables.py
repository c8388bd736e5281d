"""What a feature adds to the index: a table of its own, given as a value, because the index knows no feature.

A feature makes its table from `IndexParts`. The index gives it the objects of its kind, tells it of pods, recounts it and
audits it. Rules read it by its class (`ClusterView.table`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from extender.index.claims.assumed import Assumed
from extender.index.claims.nominations import InMemoryNomination
from extender.index.objects.namespaces import Namespaces
from extender.index.policies import PolicyTable
from extender.model.objects import Object, Pod
from extender.model.policies import Exempt

Check: TypeAlias = Callable[[], list[str]]
"""A step of the audit: the differences that it finds."""
Observer: TypeAlias = Callable[[Pod], None]


@dataclass(frozen=True, slots=True)
class IndexParts:
    """What a table of a feature may read of the index. ``assumed`` and ``nominated`` are by UID, as ``pods`` is.

    ``exempt``: objects that no policy applies to.
    """

    pods: Mapping[str, Pod]
    assumed: Callable[[], Mapping[str, Assumed]]
    nominated: Mapping[str, InMemoryNomination]
    namespaces: Namespaces
    policies: PolicyTable
    exempt: Exempt


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """What the index calls of a table.

    - ``shown``: what rules and verbs see of it, under the class ``view``.
    - ``kind``, ``api_kind``: the objects that it keeps, ``objects`` by key. ``change`` applies one; None: it is deleted.
    - ``observe``: a pod, its binding or its assumption may have changed. None if the feature is disabled, so that events of
      pods cost no call.
    - ``rebuild`` counts everything again. ``checks`` are steps of the audit, ``check_pods`` audits pods by UID.
    - ``statistics``: sizes of all that is kept.
    """

    view: type[Any]
    shown: object
    kind: type[Object]
    api_kind: str
    objects: Mapping[str, Object]
    change: Callable[[str, Any], bool]
    observe: Observer | None
    rebuild: Callable[[], None]
    checks: Callable[[], Iterator[Check]]
    check_pods: Callable[[Iterable[str]], list[str]]
    statistics: Callable[[], dict[str, int]]


MakeTable: TypeAlias = Callable[[IndexParts], FeatureTable]


def joined(tables: Iterable[FeatureTable]) -> Observer | None:
    """One call that tells all enabled tables of a pod; None if there is none, the table's own if there is one."""
    observers = tuple(table.observe for table in tables if table.observe is not None)
    if len(observers) <= 1:
        return observers[0] if observers else None

    def observe(pod: Pod) -> None:
        for observer in observers:
            observer(pod)

    return observe
