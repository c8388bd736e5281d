"""The CRD of topology domains: structural, bounded, and with every field that is read."""

from __future__ import annotations

import orjson

from deploy.policies.crds import domains_crd
from extender.model.constraints.labels import ZONE
from extender.model.objects import DOMAINS_KIND, ExcludedDomain, TopologyDomains
from extender.wire.objects.kinds import TOPOLOGY_DOMAINS
from tests.deploy.policies.test_schema import kept, schema_of, test_the_schema_is_structural_and_has_no_unbounded_part

EXCLUDED = {"domain": "b", "until": "2026-11-26T14:00:00Z", "since": "2026-11-26T12:00:00Z", "reason": "new switches"}
WHOLE = {"metadata": {}, "spec": {"topologyKey": ZONE, "domains": ["a", "b"], "excluded": [EXCLUDED]}}
NOON = 1795694400.0


def test_the_schema_is_structural_and_bounded() -> None:
    test_the_schema_is_structural_and_has_no_unbounded_part(domains_crd())


def test_every_field_is_kept_and_read() -> None:
    assert kept(schema_of(domains_crd()), WHOLE) == WHOLE
    found = TOPOLOGY_DOMAINS.decode_object(orjson.dumps(WHOLE | {"metadata": {"name": "zones"}}))
    excluded = ExcludedDomain("b", NOON + 7200, NOON, "new switches")
    assert found == TopologyDomains("zones", ZONE, ("a", "b"), (excluded,))


def test_the_names_are_those_that_the_extender_asks_for() -> None:
    names = domains_crd()["spec"]["names"]
    assert (names["kind"], names["plural"], domains_crd()["spec"]["scope"]) == (
        DOMAINS_KIND,
        TOPOLOGY_DOMAINS.name,
        "Cluster",
    )
