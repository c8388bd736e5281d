"""Updates of a pod: the corners that the cases with the API server's answers (tests/parity) leave out."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from extender.simulator.apiserver.pod_updates import allowed
from tests.builders import REQUIRED, matching, requirement, spread, term

Pod = dict[str, Any]


def pod(spec: Pod | None = None, **metadata: Any) -> Pod:
    """A stored pod with one container; ``spec`` and ``metadata`` add to it."""
    whole = {"name": "web-1", "namespace": "team-a", "uid": "u1", "resourceVersion": "7", **metadata}
    return {"metadata": whole, "spec": {"containers": [{"name": "app", "image": "web:1"}], **(spec or {})}}


def app(image: str = "a", **fields: Any) -> Pod:
    """A spec with one container."""
    return {"containers": [{"name": "app", "image": image, **fields}]}


def errors(old: Pod, new: Pod) -> list[tuple[str, str]]:
    """The errors of an update as field and type."""
    return [(error.field, error.type.removeprefix("FieldValue")) for error in allowed(old, new).errors]


EQUAL: dict[str, tuple[Pod, Pod]] = {
    "the same quantity in another unit": (
        app(resources={"requests": {"cpu": "1"}}),
        app(resources={"requests": {"cpu": "1000m"}}),
    ),
    "an empty map": ({"nodeSelector": {}}, {}),
    "an empty list": ({}, {"topologySpreadConstraints": []}),
    "null": ({"affinity": None}, {}),
    "the empty security context of a pod": ({"securityContext": {}}, {}),
    "empty resources of a container": (app(resources={}), app()),
    "a switch that is off": ({"hostNetwork": False}, {}),
    "the older name of the service account": ({"serviceAccountName": "s"}, {"serviceAccount": "s"}),
}
DIFFERENT: dict[str, tuple[Pod, Pod]] = {
    "an empty affinity is a pointer to something": ({}, {"affinity": {}}),
    "an empty pod affinity": (
        {"affinity": {"nodeAffinity": {}}},
        {"affinity": {"nodeAffinity": {}, "podAffinity": {}}},
    ),
    "an empty security context of a container": (app(), app(securityContext={})),
    "empty resources of the pod": ({}, {"resources": {}}),
    "user 0": ({}, {"securityContext": {"runAsUser": 0}}),
    "a switch that is a pointer": ({}, {"enableServiceLinks": False}),
    "a grace period of 1 that was not negative": (
        {"terminationGracePeriodSeconds": 5},
        {"terminationGracePeriodSeconds": 1},
    ),
    "a grace period other than 1": ({"terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 2}),
}


@pytest.mark.parametrize(("old", "new"), (EQUAL | DIFFERENT).values(), ids=EQUAL | DIFFERENT)
def test_what_the_api_server_decodes_alike_is_no_change_and_anything_else_is_one(old: Pod, new: Pod) -> None:
    is_equal = (old, new) in EQUAL.values()
    assert errors(pod(old), pod(new)) == ([] if is_equal else [("spec", "Forbidden")])


OWNER = {"apiVersion": "v1", "kind": "A"}
METADATA = {
    "another pod of the same name": ({"uid": "u2"}, [("metadata.uid", "Invalid")]),
    "no version": ({"resourceVersion": ""}, [("metadata.resourceVersion", "Invalid")]),
    "an older generation": ({"generation": 1}, [("metadata.generation", "Invalid")]),
    "a label with a bad value": ({"labels": {"a": "-"}}, [("metadata.labels", "Invalid")]),
    "an annotation with a bad key": ({"annotations": {"a b": ""}}, [("metadata.annotations", "Invalid")]),
    "annotations of 257 KiB": ({"annotations": {"a": "x" * 257 * 1024}}, [("metadata.annotations", "TooLong")]),
    "a cost that is no number": (
        {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "+1"}},
        [("metadata.annotations[controller.kubernetes.io/pod-deletion-cost]", "Invalid")],
    ),
    "a finalizer without a domain": ({"finalizers": ["mine"]}, [("metadata.finalizers[0]", "Invalid")]),
    "two controllers": (
        {"ownerReferences": [OWNER | {"name": "a", "uid": uid, "controller": True} for uid in "ab"]},
        [("metadata.ownerReferences", "Invalid")],
    ),
    "an owner without a name": (
        {"ownerReferences": [OWNER | {"uid": "a"}]},
        [("metadata.ownerReferences.name", "Invalid")],
    ),
    "labels that are a list": ({"labels": []}, [("metadata.labels", "TypeInvalid")]),
}


@pytest.mark.parametrize(("changed", "expected"), METADATA.values(), ids=METADATA)
def test_metadata_keeps_its_identity_and_stays_valid(changed: Pod, expected: list[tuple[str, str]]) -> None:
    assert errors(pod(generation=2), pod(**{"generation": 2, **changed})) == expected


GATED: Pod = {"schedulingGates": [{"name": "a/b"}]}
ENDING: Pod = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
MIRROR: Pod = {"annotations": {"kubernetes.io/config.mirror": "x"}}


def terms(*values: str) -> Pod:
    """A spec with one required node term that lists values."""
    required = {"nodeSelectorTerms": [{"matchExpressions": [requirement("zone", "In", list(values))]}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: required}}}


_TERM = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0]"
CORNERS: dict[str, tuple[Pod, Pod, list[tuple[str, str]]]] = {
    "a mirror pod without a node": (
        pod(**MIRROR),
        pod(**MIRROR),
        [("metadata.annotations[kubernetes.io/config.mirror]", "Invalid")],
    ),
    "a mirror pod with a node": (pod({"nodeName": "n1"}, **MIRROR), pod({"nodeName": "n1"}, **MIRROR), []),
    "an image, also where containers were added": (
        pod(),
        pod({"containers": [{"name": "app", "image": "web:2 "}, {"name": "more", "image": "x"}]}),
        [("spec.containers[0].image", "Invalid"), ("spec.containers", "Forbidden")],
    ),
    "an error that two checks find": (pod(), pod(app("")), [("spec.containers[0].image", "Required")]),
    "a new finalizer of a pod that is being deleted": (
        pod(finalizers=["a/b"], **ENDING),
        pod(finalizers=["a/b", "a/c"], **ENDING),
        [("metadata.finalizers", "Forbidden")],
    ),
    "a gate of a name that is twice new": (
        pod(),
        pod({"schedulingGates": [{"name": "a/b"}, {"name": "a/b"}]}),
        [("spec.schedulingGates[1]", "Duplicate"), ("spec.schedulingGates[1].name", "Forbidden")],
    ),
    "a shorter list of values, although it narrows": (
        pod({**terms("a", "b"), **GATED}),
        pod({**terms("a"), **GATED}),
        [(_TERM, "Invalid")],
    ),
    "a wrong label value that the pod has had": (pod({**terms("-"), **GATED}), pod(terms("-")), []),
}


@pytest.mark.parametrize(("old", "new", "expected"), CORNERS.values(), ids=CORNERS)
def test_a_corner_has_the_errors_of_the_api_server(old: Pod, new: Pod, expected: list[tuple[str, str]]) -> None:
    assert errors(old, new) == expected


MALFORMED = {
    "spec": ([], "spec"),
    "containers": ({"containers": ["a"]}, "spec.containers[0]"),
    "gates": ({"schedulingGates": {}}, "spec.schedulingGates"),
    "selector": ({"nodeSelector": {"a": 1}}, "spec.nodeSelector[a]"),
    "terms": ({"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [7]}}}}, _TERM),
    "deadline": ({"activeDeadlineSeconds": "soon"}, "spec.activeDeadlineSeconds"),
    "grace": ({"terminationGracePeriodSeconds": "-1"}, "spec.terminationGracePeriodSeconds"),
    "system": ({"os": "linux"}, "spec.os"),
    "constraints": ({"topologySpreadConstraints": [3]}, "spec.topologySpreadConstraints[0]"),
}


@pytest.mark.parametrize(("spec", "field"), MALFORMED.values(), ids=MALFORMED)
def test_wrong_types_are_named_and_nothing_else_is(spec: Any, field: str) -> None:
    old = pod({"schedulingGates": [{"name": "a/b"}]})
    new = {**old, "spec": {**old["spec"], **spec} if isinstance(spec, dict) else spec}
    assert errors(old, new) == [(field, "TypeInvalid")]


def selecting(value: str, *, by_spread: bool) -> Pod:
    """A spec that selects pods by a label value, for spread or for anti-affinity."""
    selector = matching(("app", "In", [value]))
    if by_spread:
        return {"topologySpreadConstraints": [spread(selector=selector)]}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term("zone", selector=selector)]}}}


@pytest.mark.parametrize("by_spread", [False, True], ids=["anti-affinity", "spread"])
def test_a_wrong_value_in_a_selector_of_pods_stays_legal_where_the_pod_has_had_one(*, by_spread: bool) -> None:
    wrong, right = selecting("-", by_spread=by_spread), selecting("a", by_spread=by_spread)
    assert errors(pod(wrong), pod(wrong, labels={"a": "b"})) == []
    ((field, kind), forbidden) = errors(pod(right), pod(wrong))
    assert (field.rpartition(".")[2], kind, forbidden) == ("values[0]", "Invalid", ("spec", "Forbidden"))


def test_neither_pod_is_changed() -> None:
    old = pod({"schedulingGates": [{"name": "a/b"}], "tolerations": [], **terms("a")})
    new = pod({"nodeSelector": {"zone": "a"}, **terms("a")})
    before = copy.deepcopy((old, new))
    assert allowed(old, new).is_allowed
    assert (old, new) == before


WINDOWS = {"os": {"name": "windows"}}
IMMUTABLE = {
    "a field of Linux on Windows": ({**WINDOWS, "hostPID": True}, "spec.hostPID", "Forbidden"),
    "a container for Linux on Windows": (
        WINDOWS | app("web:1", securityContext={"privileged": False}),
        "spec.containers[0].securityContext.privileged",
        "Forbidden"
    ),
    "Windows options on Linux": (
        {"os": {"name": "linux"}, "securityContext": {"windowsOptions": {}}},
        "spec.securityContext.windowsOptions",
        "Forbidden"
    ),
    "resources of the pod on Windows": ({**WINDOWS, "resources": {}}, "spec.resources", "Forbidden"),
    "a system without a name": ({"os": {}}, "spec.os.name", "Required"),
    "claims of the pod": ({"resources": {"claims": [{"name": "a"}]}}, "spec.resources.claims", "Forbidden"),
    "no quantity": ({"resources": {"limits": {"cpu": "much"}}}, "spec.resources.limits[cpu]", "Invalid"),
    "containers that request more than the pod": (
        {**app("web:1", resources={"requests": {"cpu": "2"}}), "resources": {"requests": {"cpu": "1"}}},
        "spec.resources.requests[cpu]",
        "Invalid"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "kind"), IMMUTABLE.values(), ids=IMMUTABLE)
def test_a_change_that_is_invalid_as_well_has_both_errors(spec: Pod, field: str, kind: str) -> None:
    assert errors(pod(), pod(spec)) == [(field, kind), ("spec", "Forbidden")]
