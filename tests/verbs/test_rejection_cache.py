"""Refusals given again from memory: only while nothing that they rest on has changed."""

from __future__ import annotations

import orjson
import pytest
from msgspec import DecodeError
from msgspec.structs import replace

from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod, PodSignature
from extender.model.units import ByteSize
from extender.rules.catalog import counts_of_rules
from extender.settings.configuration import Settings
from extender.settings.rules import Answers
from extender.verbs.filter import FilterVerb
from extender.wire.extender_v1 import ExtenderArgs, FilterResult, decode_args, encode_filter
from extender.wire.objects.kinds import NAMESPACES, NODES, PODS

HOST = "kubernetes.io/hostname"
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": HOST,
                "labelSelector": {"matchLabels": {"app": "web"}},
                "namespaceSelector": {"matchLabels": {"t": "a"}},
            }
        ]
    }
}


class Asker:
    """An index of two nodes with a web pod on each and one without, the memory, and a count of real decisions.

    Asked about are the two, so that not every node is refused and the answer is worth remembering.
    """

    def __init__(self, most_bytes: int = 1 << 20) -> None:
        self.settings = Settings(placement="cooperative", answers=Answers(rejection_cache_bytes=ByteSize(most_bytes)))
        self.index = ClusterIndex(self.settings.rules, counts_of_rules())
        self.verb = FilterVerb(self.index.view, self.settings)
        self.memory = self.verb.rejections
        self.asked = 0
        self.shapes: list[PodSignature] = []
        for name in ("n0", "n1", "n2"):
            node = {"metadata": {"name": name, "labels": {HOST: name}}}
            self.index.upsert(NODES.decode_object(orjson.dumps(node)))
        for name in ("n1", "n2"):
            self.put(f"web-{name}", on=name)
        self.relabel(t="a")

    def relabel(self, **labels: str) -> None:
        self.index.upsert(NAMESPACES.decode_object(orjson.dumps({"metadata": {"name": "ns", "labels": labels}})))

    def put(self, name: str, on: str, **labels: str) -> None:
        meta = {"name": name, "uid": name, "namespace": "ns", "labels": labels or {"app": "web"}}
        self.index.upsert(PODS.decode_object(orjson.dumps({"metadata": meta, "spec": {"nodeName": on}})))

    def ask(self, *names: str) -> FilterResult:
        pod = {"metadata": {"name": "asking", "uid": "u", "namespace": "ns"}, "spec": {"affinity": APART}}
        args = decode_args(orjson.dumps({"Pod": pod, "NodeNames": names or ("n1", "n2")}))
        self.shapes.append(args.pod.signature)
        self.asked += 1
        return self.verb.decide(args, 0).result

    @property
    def decided(self) -> int:
        """How many questions the cache did not answer."""
        return self.asked - self.memory.hits


def test_a_rejection_is_given_again_byte_for_byte_without_deciding() -> None:
    asker = Asker()
    first, second = asker.ask(), asker.ask()
    assert (asker.decided, asker.memory.hits) == (1, 1)
    assert encode_filter(second) == encode_filter(first)
    assert second.reasons == first.reasons
    assert orjson.loads(encode_filter(second))["FailedAndUnresolvableNodes"].keys() == {"n1", "n2"}


def test_a_pod_that_does_not_concern_the_request_keeps_the_cached_rejection_valid() -> None:
    asker = Asker()
    asker.ask()
    asker.put("other", on="n1", app="batch")
    asker.ask()
    assert asker.decided == 1


@pytest.mark.parametrize("change", ["pod gone", "namespace relabelled", "node added"])
def test_a_change_of_the_grounds_is_decided_anew(change: str) -> None:
    asker = Asker()
    assert asker.ask().unresolvable
    if change == "pod gone":
        pod = asker.index.view.pod("web-n1")
        assert pod is not None
        asker.index.delete(pod)
    elif change == "namespace relabelled":
        asker.relabel(t="b")
    else:
        asker.index.upsert(NODES.decode_object(b'{"metadata":{"name":"n3"}}'))
    answer = asker.ask()
    assert asker.decided == 2
    assert list(answer.passed) == {"pod gone": ["n1"], "namespace relabelled": ["n1", "n2"], "node added": []}[change]


def test_a_rejection_because_of_a_pod_whose_node_is_not_known_is_decided_anew_every_time() -> None:
    asker = Asker()
    coming = PODS.decode_object(
        orjson.dumps({"metadata": {"name": "w", "uid": "w", "namespace": "ns", "labels": {"app": "web"}}})
    )
    asker.index.assume(coming, ("n0", "n3"), now=0.0)
    asker.ask()
    asker.ask()
    assert (asker.decided, len(asker.memory), asker.memory.hits) == (2, 0, 0)


def test_other_names_are_another_request() -> None:
    asker = Asker()
    asker.ask("n1")
    asker.ask("n2")
    assert asker.decided == 2


def test_the_memory_forgets_the_oldest_beyond_its_size() -> None:
    asker = Asker(most_bytes=3000)
    asker.ask("n1")
    asker.ask("n2")
    assert len(asker.memory) == 1
    assert 1500 < asker.memory.bytes <= 3000
    asker.ask("n1")
    assert asker.decided == 3


def test_the_names_are_read_only_for_a_signature_with_a_cached_rejection() -> None:
    asker = Asker(most_bytes=3000)
    asker.ask("n1")
    other = PODS.decode_object(orjson.dumps({"metadata": {"name": "o", "uid": "o", "namespace": "ns"}}))
    unread = ExtenderArgs(other, ["n1"], body=b"no JSON, so that to read it is an error")
    assert asker.verb.decide(unread, 0).result.passed == ["n1"]
    with pytest.raises(DecodeError):
        asker.verb.decide(replace(unread, pod=replace(other, signature=asker.shapes[-1])), 0)


def test_a_signature_whose_last_rejection_was_evicted_has_none() -> None:
    asker = Asker(most_bytes=3000)
    asker.ask("n1")
    asker.relabel(t="b")
    assert list(asker.ask("n1").passed) == ["n1"]
    signature = asker.shapes[-1]
    unread = ExtenderArgs(Pod("u", "asking", signature), ["n1"], body=b"no JSON")
    assert list(asker.verb.decide(unread, 0).result.passed) == ["n1"]


def test_no_memory_decides_every_time() -> None:
    asker = Asker(most_bytes=0)
    asker.ask()
    asker.ask()
    assert asker.decided == 2


def test_what_is_said_of_every_node_is_decided_at_once_and_takes_no_memory() -> None:
    asker = Asker()
    asker.put("web-n0", on="n0")
    first, second = asker.ask(), asker.ask()
    assert (asker.decided, len(asker.memory)) == (2, 0)
    assert encode_filter(first) == encode_filter(second)
    assert {reason.text for reason in first.reasons} == set(first.unresolvable.values())


def test_what_a_rejection_keeps_of_its_pod_counts() -> None:
    """Else a few large templates, refused once, would be kept for ever."""
    asker = Asker()
    asker.ask()
    signature = asker.shapes[-1]
    assert asker.memory.bytes > signature.size > 0
