"""Which policies a new pod says were injected into it."""

from __future__ import annotations

import msgspec
import orjson
import pytest

from extender.model.objects import Object, Pod, PodSignature
from extender.model.policies import GROUP, PolicyKey
from extender.tasks.reflectors import InjectedPods

OURS = PolicyKey(GROUP, "shop", "apart")
WIDE = PolicyKey(GROUP, "", "zones")


class Index:
    """Knows the UIDs of pods."""

    def __init__(self) -> None:
        self.known: dict[str, Object] = {}

    def upsert(self, obj: Object) -> bool:
        """Keep it."""
        self.known[obj.key] = obj
        return True

    def delete(self, obj: Object) -> bool:
        """Forget it."""
        return self.known.pop(obj.key, None) is not None


class Scene:
    """What is told of pods."""

    def __init__(self) -> None:
        self.index = Index()
        self.pods = InjectedPods(self.index, self.index.known)
        self.told: list[tuple[str, tuple[PolicyKey, ...]]] = []
        self.pods.tell = lambda signature, policies: self.told.append((signature.namespace, tuple(policies)))


def pod(uid: str, *policies: object, text: str | None = None) -> Pod:
    """A pod with a record of these policies."""
    record = orjson.dumps({"": {"policies": [{"policy": each} for each in policies]}}).decode()
    injected = text if text is not None else record if policies else ""
    return Pod(uid, uid, PodSignature("shop", {}, injected=injected))


def test_each_new_pod_tells_its_policies_once() -> None:
    scene = Scene()
    first = pod("1", str(OURS), str(WIDE))
    for each in (first, msgspec.structs.replace(first, rejection="later"), pod("2", str(OURS), str(WIDE)), pod("3")):
        assert scene.pods.upsert(each)
    assert scene.told == [("shop", (OURS, WIDE))] * 2
    assert set(scene.index.known) == {"1", "2", "3"}
    assert scene.pods.delete(first)
    assert set(scene.index.known) == {"2", "3"}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Pod/x",
        "PodSchedulingPolicy/one",
        "ClusterPodSchedulingPolicy/a/b",
        "PodSchedulingPolicy.kupid.gardener.cloud/a/b",
    ],
)
def test_a_name_that_is_no_policy_of_ours_is_passed_over(name: str) -> None:
    scene = Scene()
    scene.pods.upsert(pod("1", name, str(OURS)))
    assert scene.told == [("shop", (OURS,))]


@pytest.mark.parametrize("text", ["{", "[]", '{"": 5}', '{"": {"policies": [{"policy": 5}]}}'])
def test_an_annotation_of_another_form_tells_nothing(text: str) -> None:
    scene = Scene()
    assert scene.pods.upsert(pod("1", text=text))
    assert scene.told == [("shop", ())]
