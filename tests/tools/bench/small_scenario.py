"""A small bench scenario to vary: thirty pods of three selectors on two hundred nodes."""

from pathlib import Path
from typing import Any

from tests.tools.bench.scenario import BenchScenario, Load, parse_bench, plan

SHIPPED = sorted(Path("config/scenarios/bench").glob("*.yaml"))
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"color": "green-{v}"}},
                "namespaceSelector": {"matchLabels": {"team": "devops"}},
            }
        ]
    }
}


def document(**parts: Any) -> dict[str, Any]:
    """A scenario as YAML gives it."""
    return {
        "apiVersion": "placement.extender.dev/v1alpha1",
        "kind": "BenchScenario",
        "name": "small",
        "template": {"labels": {"color": "green-{v}"}, "spec": {"affinity": APART}},
        "cluster": {"nodes": 200, "zones": 4, "namespaces": 5, "namespaceLabels": {"team": "devops"}},
        "requests": {"count": 12},
        "cases": [{"labels": ["short"], "pods": [30], "selectors": [3], "names": [10]}],
        **parts,
    }


def scenario(**parts: Any) -> BenchScenario:
    """The same, read."""
    return parse_bench(document(**parts))


def load(**parts: Any) -> Load:
    """The only load of such a scenario."""
    (only,) = plan(scenario(**parts))
    return only
