"""What the extender says of itself and of the cluster as a whole, in the form in which the API encodes it."""

from __future__ import annotations

from typing import Literal

from extender.model.answers.explanations import Value


class KeySummary(Value, frozen=True):
    """A label key of nodes: how many ``nodes`` carry it, with how many values, which are the ``domains``."""

    key: str
    domains: int
    nodes: int


class ClusterFigures(Value, frozen=True):
    """How many objects the index holds, and how many pods are in which state.

    ``pending`` pods wait for a node and are not gated; ``assumed`` ones have passed filter and are not seen bound.
    ``preemptions_in_flight``: preemptors that are not bound yet. ``groups_in_flight``: groups with a pod that is not bound.
    ``invalid_policies`` are not among ``policies``. ``rebuilds``: how often the counts of the index had to be built again, which only a bug causes. ``topology_keys``: the usual ones first, then those that most nodes
    carry; ``more_keys`` are left out.
    """

    nodes: int
    pods: int
    namespaces: int
    pending: int
    gated: int
    assumed: int
    preemptions_in_flight: int
    groups_in_flight: int
    policies: int
    invalid_policies: int
    rebuilds: int
    topology_keys: tuple[KeySummary, ...]
    more_keys: int


class VerbRate(Value, frozen=True):
    """The answers of one verb in the last minute. Percentiles are upper bounds, at most a fifth above the true ones."""

    verb: str
    answers: int
    errors: int
    per_second: float
    p50_milliseconds: float
    p99_milliseconds: float


class HealthCheck(Value, frozen=True):
    """One check of the extender, with its result in words."""

    check: str
    status: Literal["ok", "warning", "failing"]
    text: str


class Features(Value, frozen=True):
    """What is switched on. ``preemption``: off, advise or execute."""

    whatif: bool
    policies: bool
    preemption: str
    quotas: bool


class Overview(ClusterFigures, frozen=True):
    """The extender and the cluster at a glance.

    ``leader``: no other replica answers now. ``ready``: the scheduler's requests are answered. ``freshness_seconds``: how
    long ago the cluster was heard of, for the kind of which that is longest ago; without changes once a minute. It is absent
    in a service that follows no cluster. ``resident_bytes`` is the memory of the process, 0 where the system does not tell.
    """

    version: str
    mode: str
    placement: str
    uptime_seconds: float
    leader: bool
    ready: bool
    health: tuple[HealthCheck, ...]
    verbs: tuple[VerbRate, ...]
    features: Features
    resident_bytes: int
    freshness_seconds: float | None = None
