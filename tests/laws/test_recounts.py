"""Filters in the trials of a dry run: what is read once and changed by each trial says the same as filters prepared again."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from extender.index.audit import audit
from extender.model.constraints.labels import HOSTNAME, ZONE
from extender.model.objects import Pod
from extender.rules import catalog
from extender.rules.frames import IndexFrame
from extender.verbs.effective_pod import effective_pod
from tests.builders import Json, pod_json, read_pod, term
from tests.laws.cases import case, meets_its_case
from tests.laws.excluded_domains import ENABLED, Cluster, directive, incoming

FULL: Json = {"topologyKey": ZONE, "fullDomains": "Exclude"}
NEAR: Json = pod_json("near", near=[term("zone", app="web")])["spec"]["affinity"]


def preemptor(rng: Random, cluster: Cluster) -> Pod:
    body = incoming(rng)
    if rng.random() < 0.5:
        (by_zone,) = body["spec"]["topologySpreadConstraints"]
        body["spec"]["topologySpreadConstraints"].append(by_zone | {"topologyKey": HOSTNAME, "maxSkew": 1})
    if rng.random() < 0.3:
        body["spec"]["affinity"] = NEAR
    return effective_pod(read_pod(body), cluster.index.view, ENABLED)


@meets_its_case
@given(st.integers(0, 2**32).map(Random))
def test_a_filter_that_is_changed_by_a_trial_says_what_one_prepared_again_says(rng: Random) -> None:
    cluster, seen = Cluster(rng, rng.choice([FULL, directive(rng)])), 0
    cluster.begin()
    for number in range(8):
        cluster.put_pod(f"p{number}", f"n{rng.randrange(6)}")
    view = cluster.index.view
    for _ in range(8):
        cluster.happen()
        pod = preemptor(rng, cluster)
        compiled = view.compiled(pod.signature)
        parts = catalog.recounted_parts(compiled, view)
        recounts = catalog.Recounts(parts, pod, view, None)
        there = [each for each in view.pods.values() if each.node in view.known]
        verdicts = set()
        with view.trial(frozenset(compiled.filter_groups())) as trial:
            for _ in range(8):
                other = rng.choice(there) if there else None
                if other is not None:
                    rng.choice([trial.take, trial.take, trial.put_back])(other)
                coming = rng.random() < 0.3
                if coming:
                    trial.place(pod, rng.choice(sorted(view.known.values())))
                filters = recounts.filters(trial.changed)
                again = catalog.prepare(parts, pod, view, IndexFrame())
                found = tuple(filters.reason(node) for node in view.known.values())
                assert found == tuple(again.reason(node) for node in view.known.values())
                verdicts.add(found)
                if coming:
                    trial.remove_last()
        seen += len(verdicts) > 1
    case(seen > 1)
    assert audit(cluster.index) == []
