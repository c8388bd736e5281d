"""Pods above a limit, the index that counts them and the events about them."""

from __future__ import annotations

import orjson
import pytest

from extender.model.objects import Excess, Object, Pod, PodSignature
from extender.model.policies import PolicyKey
from extender.tasks.reflectors import InjectedPods, OverLimits


def above(limit: str = "affinityTerms") -> PodSignature:
    return PodSignature("team-a", excess=Excess(limit, f"too many, limits.{limit} is 1"))


def limited_pod(number: int, signature: PodSignature) -> Pod:
    return Pod(f"uid-{number}", f"pod-{number}", signature)


def counted(found: OverLimits) -> dict[str, int]:
    return {limit: pods for limit, pods in found.counts().items() if pods}


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    return [(record.message, vars(record)["pod"], vars(record)["limit"]) for record in caplog.records]


class Index:
    """Knows the UIDs of pods."""

    def __init__(self) -> None:
        self.known: dict[str, Object] = {}

    def upsert(self, obj: Object) -> bool:
        self.known[obj.key] = obj
        return True

    def delete(self, obj: Object) -> bool:
        return self.known.pop(obj.key, None) is not None


class Scene:
    """Records the reports about pods."""

    def __init__(self) -> None:
        self.index = Index()
        self.pods = InjectedPods(self.index, self.index.known)
        self.reported: list[tuple[str, tuple[PolicyKey, ...]]] = []
        self.pods.on_injected = lambda signature, policies: self.reported.append((signature.namespace, tuple(policies)))


def recorded_pod(uid: str, *policies: object, text: str | None = None) -> Pod:
    """A pod with a record of these policies."""
    record = orjson.dumps({"": {"policies": [{"policy": each} for each in policies]}}).decode()
    injected = text if text is not None else record if policies else ""
    return Pod(uid, uid, PodSignature("shop", {}, injected=injected))
