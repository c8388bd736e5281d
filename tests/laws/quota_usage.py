"""Random changes of pods, policies and quotas, and the index that receives them one by one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from extender.features.quotas.settings import Quota
from extender.features.quotas.table import quota_table
from extender.index.claims.assumed import AssumptionTimeouts
from extender.index.cluster import ClusterIndex
from extender.model.policies import PolicyObject
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.builders import REQUIRED, Json, namespace, pod_json, read_pod, term
from tests.features.quotas.tenants import quota
from tests.policies import policy

NAMES = ("a", "b", "c", "d")
HOMES = ("team", "other")
ACROSS = [term("zone", app="db", namespace_selector={})]
BY_POLICY = policy("apart", affinity={"podAntiAffinity": {REQUIRED: ACROSS}}, podSelector={"matchLabels": {"app": "p"}})


# "on": the watch shows a pod; "gone": it is deleted; "assumed": it passed; "failed": its binding failed.
Step = tuple[str, Any]


def _pod(name: str, form: str, node: str, cpu: int, deadline: int) -> Json:
    home = HOMES[NAMES.index(name) % 2]
    apart = ACROSS if form == "across" else [term(app="db")] if form == "within" else ()
    body = pod_json(name, namespace=home, apart=apart, on=node, app="p" if form == "by policy" else "web")
    resources = {"requests": {"cpu": f"{cpu}m"}, "limits": {"cpu": f"{2 * cpu}m"}}
    body["spec"]["containers"] = [{"name": "main", "resources": resources}]
    if deadline:
        body["spec"]["activeDeadlineSeconds"] = deadline
    return body


PODS_OF = st.builds(
    _pod,
    st.sampled_from(NAMES),
    st.sampled_from(["across", "across", "within", "by policy"]),
    st.sampled_from(["", "n1", "n2"]),
    st.sampled_from([100, 200]),
    st.sampled_from([0, 60]),
)


def take(index: ClusterIndex, step: Step) -> None:
    what, of = step
    match what:
        case "quota":
            home, name, hard, scopes = of
            index.upsert(quota(name, hard, in_namespace=home, scopes=scopes))
        case "no quota":
            index.delete(quota(of[1], in_namespace=of[0]))
        case "policy":
            (index.upsert if of else index.delete)(PolicyObject(BY_POLICY))
        case "relabelled":
            index.upsert(namespace(of, team="x"))
        case _:
            _take_pod(index, what, of)


def _take_pod(index: ClusterIndex, what: str, of: Any) -> None:
    match what:
        case "on":
            index.upsert(read_pod(of))
        case "gone":
            index.delete(read_pod(of))
        case "finished":
            index.upsert(read_pod({**of, "status": {"phase": "Succeeded"}}))
        case "assumed":
            index.assume(read_pod({**of[0], "spec": {**of[0]["spec"], "nodeName": ""}}), of[1], 0.0)
        case "failed":
            index.assumed.forget(f"uid-{of}")
        case "preempts" if f"uid-{of}" in index.pods:
            index.nominate_in_memory(index.pods[f"uid-{of}"], "n1", ())
        case "released":
            index.release_nomination(f"uid-{of}")
        case "plan over":
            index.end_nomination(f"uid-{of}")
        case "doubted":
            index.assumed.review(1.0, AssumptionTimeouts(expiry=10.0, failure_grace=10.0, doubt=0.5))


def quota_index(*, counts_pending: bool) -> ClusterIndex:
    return ClusterIndex(
        Rules(), counts_of_rules(), tables=(quota_table(Quota(enabled=True, count_pending=counts_pending)),)
    )


def placed(index: ClusterIndex) -> int:
    """The pods that count, by hand: from the objects and the assumptions alone."""
    held = {uid: each.pod for uid, each in index.assumed.held.items()}
    plans = {uid for uid, plan in index.nominations.in_memory.items() if plan.holds}
    held |= {uid: pod for uid, pod in index.pods.items() if pod.node or (uid in plans and uid not in held)}
    has_policy = len(index.policies) > 0
    return sum(
        pod.signature.affinity.cross_namespace or (has_policy and pod.signature.labels.get("app") == "p")
        for pod in held.values()
    )
