"""AdmissionReviews for tests: requests as an API server sends them, and what it does with the responses."""

from __future__ import annotations

import base64
import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from extender.index.policies import PolicyTable
from extender.model.constraints.labels import Labels
from extender.model.policies import InvalidPolicy, Policy
from extender.settings.configuration import Settings
from extender.settings.limits import ConstraintLimits
from extender.settings.policies import Policies, Release
from extender.simulator.apiserver.patching import JSON, apply_patch
from extender.verbs.admit.decision import AdmitVerb
from extender.verbs.admit.policy_reviews import NodeReader
from tests.builders import Json

KINDS = {
    "Pod": ("", "v1"),
    "ReplicationController": ("", "v1"),
    "Deployment": ("apps", "v1"),
    "StatefulSet": ("apps", "v1"),
    "DaemonSet": ("apps", "v1"),
    "ReplicaSet": ("apps", "v1"),
    "Job": ("batch", "v1"),
    "CronJob": ("batch", "v1"),
    "Rollout": ("argoproj.io", "v1alpha1"),
    "JobSet": ("jobset.x-k8s.io", "v1alpha2"),
    "PodSchedulingPolicy": ("placement.extender.dev", "v1alpha1"),
    "ClusterPodSchedulingPolicy": ("placement.extender.dev", "v1alpha1"),
}
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob")
LABELS = {"app": "web"}


@dataclass(frozen=True)
class KnownNamespaces:
    """Namespaces with their labels."""

    known: Mapping[str, Labels]

    def labels(self, name: str) -> Labels | None:
        return self.known.get(name)


def verb(
    *policies: Policy,
    invalid: Iterable[InvalidPolicy] = (),
    settings: Policies | None = None,
    limits: ConstraintLimits | None = None,
    namespaces: Mapping[str, Labels] | None = None,
    nodes: NodeReader | None = None,
    releases: bool = True,
    rejects_excess: bool = True,
) -> AdmitVerb:
    """The verb over a table of these policies."""
    table = PolicyTable(settings or Policies())
    table.replace([*policies, *invalid])
    known = KnownNamespaces({"shop": {"team": "a"}} if namespaces is None else namespaces)
    whole = Settings(
        mode="offload" if rejects_excess else "augment",
        limits=limits or ConstraintLimits(),
        policies=settings or Policies(),
        release=Release(enabled=releases),
    )
    return AdmitVerb(table, known, whole, nodes)


def pod(spec: Json | None = None, **metadata: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "shop", "labels": LABELS} | metadata,
        "spec": {"containers": [{"name": "c", "image": "i"}]} | (spec or {}),
    }


def workload(kind: str = "Deployment", spec: Json | None = None, **metadata: Any) -> Json:
    """A controller whose template has the label app=web."""
    template: Json = {
        "metadata": {"labels": LABELS},
        "spec": {"containers": [{"name": "c", "image": "i"}]} | (spec or {}),
    }
    group, version = KINDS[kind]
    holder: Json = {"jobTemplate": {"spec": {"template": template}}} if kind == "CronJob" else {"template": template}
    if kind == "JobSet":
        holder = {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]}
    return {
        "apiVersion": f"{group}/{version}" if group else version,
        "kind": kind,
        "metadata": {"name": "w", "namespace": "shop"} | metadata,
        "spec": holder,
    }


def template_spec(obj: Json) -> Any:
    """The pod spec of a pod or a workload."""
    spec = obj["spec"]
    if obj["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    if obj["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    return spec if obj["kind"] == "Pod" else spec["template"]["spec"]


def review(obj: Any, operation: str = "CREATE", *, old: Json | None = None, **request: Any) -> Json:
    kind = obj.get("kind", "Pod") if isinstance(obj, dict) else "Pod"
    group, version = KINDS.get(kind, ("", "v1"))
    made: Json = {
        "uid": "u-1",
        "kind": {"group": group, "version": version, "kind": kind},
        "operation": operation,
        "namespace": "shop",
        "object": obj,
        "oldObject": old,
        "dryRun": False,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": made | request}


@dataclass(frozen=True)
class Answer:
    """A response, and the object as the API server would go on with it."""

    response: Json
    obj: Json

    @property
    def patch(self) -> list[Json]:
        """The operations of the JSON patch; empty where there is none."""
        return patch_of(self.response)

    @property
    def warnings(self) -> list[str]:
        return list(self.response.get("warnings") or ())

    @property
    def message(self) -> str:
        return str(self.response["status"]["message"])


def patch_of(response: Json) -> list[Json]:
    if "patch" not in response:
        return []
    assert response["patchType"] == "JSONPatch"
    operations: list[Json] = orjson.loads(base64.b64decode(response["patch"]))
    assert operations, "an empty patch is left out"
    return operations


def reviewed(admit: AdmitVerb, obj: Json, operation: str = "CREATE", **request: Any) -> Answer:
    """Asks about an object and applies the patch. Checks that the verb changed nothing of the request itself."""
    sent = review(obj, operation, **request)
    before = copy.deepcopy(sent)
    found = admit.decide(sent)
    assert sent == before, "the request was changed"
    assert (found["apiVersion"], found["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = orjson.loads(orjson.dumps(found["response"]))
    assert response["uid"] == sent["request"]["uid"]
    unshared: Json = orjson.loads(
        orjson.dumps(obj)
    )  # a patch of one field must not reach another that shares its object
    return Answer(response, apply_patch(unshared, patch_of(response), JSON))
