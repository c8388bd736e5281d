"""Policies, the API server that takes their status, and the task that writes it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from extender.index.objects.namespaces import Namespaces
from extender.index.policies import PolicyTable
from extender.kube.effects import ObjectEvent, PolicyRef
from extender.kube.writer import PolicyObjects
from extender.model.objects import PodSignature
from extender.model.policies import ConflictPolicy, Exempt, Policy, PolicyKey
from extender.model.release import DomainUse
from extender.simulator.apiserver.kinds import OWN_POLICY_KINDS
from extender.tasks.events import EventRecorder
from extender.tasks.policy_status import PolicyStatus
from extender.verbs.admit.pod_fields import Changes, FieldConflict
from extender.wire.api_server import ApiServer, loss_of
from extender.wire.policies.policies_v1 import PolicyError, read_policy
from tests.builders import index_of
from tests.deploy.policies.examples import policy
from tests.fake_api import FakeApi, Rows
from tests.fakes import FakeClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Json = dict[str, Any]


def _place(key: PolicyKey) -> str:
    return f"{key.namespace}/{key.name}" if key.namespace else key.name


class RecordedReasons(EventRecorder):
    """Events that are to be recorded."""

    def __init__(self) -> None:
        self.reasons: list[tuple[PolicyKey, str]] = []
        self.forgotten: list[object] = []

    def record(self, event: ObjectEvent, about: object = None) -> None:
        assert isinstance(event.about, PolicyRef)
        assert about == event.about.key
        self.reasons.append((event.about.key, event.reason))

    def forget(self, about: object) -> None:
        self.forgotten.append(about)


class Scene:
    """Policies, and pods by signature."""

    def __init__(self) -> None:
        self.api, self.table, self.clock, self.namespaces = FakeApi(), PolicyTable(), FakeClock(), Namespaces()
        self.pods: Counter[PodSignature] = Counter()
        self.index = index_of()
        self.time = NOON
        self.is_complete = True
        self.uses: dict[PolicyKey, list[DomainUse]] = {}
        self.events = RecordedReasons()
        self.api_server: ApiServer | None = None
        self.status = PolicyStatus(
            PolicyObjects(self.api, "extender", "a"),
            self.events,
            self.table,
            lambda: self.pods,
            self.namespaces,
            Exempt(["kube-system"], ["default"]),
            self.clock,
            lambda: self.time,
            lambda: self.is_complete,
            lambda policy: self.uses.get(policy.key, []),
            self.index.domains,
            lambda policy: loss_of(policy, self.api_server),
        )

    def apply(self, name: str = "one", generation: int = 1, **spec: Any) -> PolicyKey:
        """Create or change a policy of `default`."""
        found = policy("PodSchedulingPolicy", name, **spec)
        found["metadata"]["generation"] = generation
        try:
            made = read_policy(found)
            self.table.put(made)
            key = made.key
        except PolicyError as error:
            self.table.put(error.invalid)
            key = error.invalid.key
        self.store(key, generation)
        return key

    def store(self, key: PolicyKey, generation: int = 1) -> None:
        """The API server has the policy, with the status that it has."""
        kept = self.rows(key).get(_place(key), {})
        metadata = {"name": key.name, "uid": f"uid-{key.name}", "generation": generation}
        if key.namespace:
            metadata["namespace"] = key.namespace
        self.rows(key)[_place(key)] = {"metadata": metadata, "status": kept.get("status", {})}

    def rows(self, key: PolicyKey) -> Rows:
        return self.api.rows(next(kind for kind in OWN_POLICY_KINDS if kind.namespaced == bool(key.namespace)))

    def status_of(self, key: PolicyKey) -> Json:
        found: Json = self.rows(key)[_place(key)]["status"]
        return found

    def run(self, count: int, namespace: str = "default", **labels: str) -> None:
        self.pods[PodSignature(namespace, labels)] += count

    def known(self, key: PolicyKey) -> Policy:
        found = self.table.get(key)
        assert found is not None
        return found

    def conflicts(self, key: PolicyKey, *fields: str) -> None:
        """A pod came that disagrees in these fields."""
        found = [FieldConflict(key, field, "differs", ConflictPolicy.KEEP_POD) for field in fields]
        self.status.record(Changes(self.known(key), conflicts=found))

    def conditions(self, key: PolicyKey) -> dict[str, tuple[str, str]]:
        return {each["type"]: (each["status"], each["reason"]) for each in self.status_of(key)["conditions"]}


def node_terms(value: str, count: int) -> Json:
    """So many required node terms, of which each wants a value of one label."""
    pool = {"key": "pool", "operator": "In", "values": [value]}
    terms = [{"matchExpressions": [pool, {"key": f"k{each}", "operator": "Exists"}]} for each in range(count)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
