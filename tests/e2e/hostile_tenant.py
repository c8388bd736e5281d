"""A tenant that creates, patches and deletes objects of its namespace, so many a second: forged labels, annotations, owners, gates.

It may write all that a namespace's administrator may, and quotas and policies of its own. By config/explanation/tenants.md no
tenant may write GroupPlacements; bindings and states of pods belong to the scheduler and the kubelet.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp

from extender.model.policies import INJECTED_ANNOTATION
from extender.model.release import RELEASE_GATE, RELEASED_ANNOTATION
from extender.simulator.json_objects import JsonObject
from extender.tasks.rejected_pods import REQUEUE_ANNOTATION
from tests.deploy.policies.examples import API_VERSION
from tests.e2e.client import Api, connect, path_of
from tests.e2e.control_plane import ControlPlane
from tests.simulator.plain import HOSTNAME, ZONE, affinity, anti_affinity, namespace, pod, spread, term

HOSTILE: Final = "hostile"
USER: Final = "tenant"
RATE: Final = 100.0  # writes a second
_AT_ONCE: Final = 64
_PODS, _OTHERS = 250, 15  # names
_RBAC: Final = "rbac.authorization.k8s.io/v1"
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_EXEMPT: Final = "placement.extender.dev/exempt"
_MERGE: Final = {"content_type": "application/merge-patch+json"}
_CORE: Final = ("pods", "services", "configmaps", "resourcequotas", "limitranges", "events", "serviceaccounts")
_GROUPS: Final = ("apps", "batch", "policy", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io")


def rules() -> list[JsonObject]:
    """What the tenant may do in its namespace."""
    return [
        {"apiGroups": [""], "resources": list(_CORE), "verbs": ["*"]},
        {"apiGroups": list(_GROUPS), "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [API_VERSION.partition("/")[0]], "resources": ["podschedulingpolicies"], "verbs": ["*"]},
    ]


@asynccontextmanager
async def tenant(api: Api, plane: ControlPlane, authority: Path) -> AsyncIterator[Api]:
    """The namespace of the tenant, and its client."""
    await api.create(namespace(HOSTILE))
    meta = {"name": USER, "namespace": HOSTILE}
    role = {"apiVersion": _RBAC, "kind": "Role", "metadata": meta, "rules": rules()}
    reference = {"apiGroup": _RBAC.partition("/")[0], "kind": "Role", "name": USER}
    subject = {"apiGroup": _RBAC.partition("/")[0], "kind": "User", "name": USER}
    binding = {"apiVersion": _RBAC, "kind": "RoleBinding", "metadata": meta, "roleRef": reference}
    await api.create(role, {**binding, "subjects": [subject]})
    async with connect(plane.url, plane.token, authority, {"Impersonate-User": USER}) as own:
        yield own


class Tenant:
    """Writes at random, from a seed, until cancelled. ``labels`` and ``owner`` of others are forged."""

    def __init__(self, api: Api, rng: Random, labels: Sequence[dict[str, str]], owner: JsonObject) -> None:
        self.answers: Counter[int] = Counter()
        self.writes = 0
        self._api = api
        self._rng = rng
        self._labels = labels
        self._owner = owner

    async def run(self) -> None:
        """So many writes a second, as far as the API server bears it."""
        loop, places = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)
        begun = loop.time()
        async with asyncio.TaskGroup() as group:
            for number in count():
                await asyncio.sleep(max(0.0, begun + number / RATE - loop.time()))
                await places.acquire()
                group.create_task(self._write()).add_done_callback(lambda _: places.release())

    async def _write(self) -> None:
        rng = self._rng
        wanted = self._pod() if rng.random() < 0.7 else self._other()
        path = path_of(wanted)
        named = f"{path}/{wanted['metadata']['name']}"
        with suppress(aiohttp.ClientError, TimeoutError):
            kind = rng.random()
            if kind < 0.4:
                answer = await self._api.request("POST", path, wanted, allow=range(400, 600))
            elif kind < 0.8:
                change = self._patch() if wanted["kind"] == "Pod" else {"spec": wanted.get("spec")}
                answer = await self._api.request("PATCH", named, change, allow=range(400, 600), **_MERGE)
            else:
                options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
                answer = await self._api.request("DELETE", named, options, allow=range(400, 600))
            self.writes += 1
            self.answers[int(answer.get("code") or 200) if answer["kind"] == "Status" else 200] += 1

    # -- pods -----------------------------------------------------------------------------------------------------

    def _pod(self) -> JsonObject:
        rng = self._rng
        spec: dict[str, Any] = {"schedulingGates": self._gates()}
        kind = rng.random()
        if kind < 0.15:  # it reaches the pods of others
            spec["affinity"] = anti_affinity(self._term() | {"namespaceSelector": {}})
        elif kind < 0.3:
            spec["affinity"] = rng.choice([affinity, anti_affinity])(self._term())
        elif kind < 0.5:
            spec["topologySpreadConstraints"] = [spread(rng.choice([HOSTNAME, ZONE]), labels=self._label())]
        elif kind < 0.65:
            spec |= {"nodeName": rng.choice(["z1-1", "z1-2"]), "schedulingGates": []}
        if rng.random() < 0.1:
            spec["schedulerName"] = "absent"
        found = pod(f"pod-{rng.randrange(_PODS)}", HOSTILE, cpu="1m", labels=self._label(), **spec)
        found["metadata"] |= {"annotations": self._annotations(), "ownerReferences": self._owners()}
        return found

    def _patch(self) -> JsonObject:
        rng = self._rng
        changes: list[Callable[[], JsonObject]] = [
            lambda: {"metadata": {"labels": self._label()}},
            lambda: {"metadata": {"labels": dict.fromkeys(self._label())}},
            lambda: {"metadata": {"annotations": self._annotations()}},
            lambda: {"metadata": {"annotations": dict.fromkeys(self._annotations())}},
            lambda: {"metadata": {"ownerReferences": self._owners()}},
            lambda: {"spec": {"schedulingGates": []}},
        ]
        return rng.choice(changes)()

    def _label(self) -> dict[str, str]:
        rng = self._rng
        found = dict(rng.choice(self._labels))
        if rng.random() < 0.2:
            found[_EXEMPT] = "true"
        if rng.random() < 0.2:
            found["pod-template-hash"] = f"h{rng.randrange(200)}"
        return found

    def _term(self) -> JsonObject:
        return term(self._rng.choice([HOSTNAME, ZONE])) | {"labelSelector": {"matchLabels": self._label()}}

    def _annotations(self) -> dict[str, str]:
        rng = self._rng
        group = next((value for key, value in self._label().items() if "gang" in key), "x")
        forged = {
            RELEASED_ANNOTATION: f"{group}@2026-01-01T00:00:00Z",
            INJECTED_ANNOTATION: rng.choice(["{}", "[", '{"policies": {"all": 1}}', "x" * 5000]),
            REQUEUE_ANNOTATION: "1",
            _COST: str(rng.randrange(-100, 100)),
            "example.com/gang-size": str(rng.choice([0, 1, 3, 4, 10**9])),
        }
        return dict(rng.sample(list(forged.items()), rng.randint(1, 4)))

    def _gates(self) -> list[JsonObject]:
        return [{"name": name} for name in ([], [RELEASE_GATE], ["example.com/own"])[self._rng.randrange(3)]]

    def _owners(self) -> list[JsonObject]:
        rng, kind = self._rng, self._rng.choice(["ReplicaSet", "StatefulSet", "DaemonSet"])
        number = rng.randrange(200)
        forged = {"apiVersion": "apps/v1", "kind": kind, "name": f"o{number}", "uid": f"u{number}", "controller": True}
        return [rng.choice([forged, self._owner])]

    # -- other objects --------------------------------------------------------------------------------------------

    def _other(self) -> JsonObject:
        rng = self._rng
        labels = self._label()
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        selector = {"matchLabels": labels}
        workload = {"selector": selector, "replicas": rng.randrange(100), "template": template}
        release = {"group": {"label": rng.choice(list(labels))}, "size": {"annotation": "example.com/gang-size"}}
        own = {"podSelector": rng.choice([{}, selector]), "priority": rng.choice([0, 1000])}
        kinds: list[tuple[str, str, JsonObject]] = [
            ("PodSchedulingPolicy", API_VERSION, {**own, "nodeSelector": {ZONE: "z1"}}),
            ("PodSchedulingPolicy", API_VERSION, {**own, "conflictPolicy": "Override", "nodeSelector": {"a": "b"}}),
            (
                "PodSchedulingPolicy",
                API_VERSION,
                {**own, "when": ["Release"], "release": release | {"topology": [ZONE]}},
            ),
            ("ResourceQuota", "v1", {"scopes": ["Terminating"], "hard": {"pods": "50"}}),
            ("ResourceQuota", "v1", {"scopes": ["CrossNamespacePodAffinity"], "hard": {"count/secrets": "50"}}),
            ("Service", "v1", {"selector": labels, "ports": [{"port": 443}]}),
            ("PodDisruptionBudget", "policy/v1", {"selector": selector, "minAvailable": "100%"}),
            ("ReplicaSet", "apps/v1", workload),
            ("StatefulSet", "apps/v1", {**workload, "serviceName": "x"}),
            ("Lease", "coordination.k8s.io/v1", {"holderIdentity": "me", "leaseDurationSeconds": 15}),
        ]
        kind, version, spec = rng.choice(kinds)
        name = rng.choice([f"{kind.lower()}-{rng.randrange(_OTHERS)}", "placement-extender"])
        return {"kind": kind, "apiVersion": version, "metadata": {"name": name, "namespace": HOSTILE}, "spec": spec}
