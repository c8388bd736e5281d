"""The CRD of topology domains as a document: the domains that a topology key has, and those that an operator excludes."""

from typing import Final

from extender.model.objects import DOMAINS_KIND
from tests.tools.crds import policies
from tests.tools.crds.schema import LABEL_KEY_TEXT, LABEL_VALUE, Schema, listed, record, rule, text

HEAD: Final = """\
# Which domains a topology key has, known before the first node of one exists, and which are excluded: read by the directive
# `spread` of policies. `extender domain exclude` writes the latter.
"""
_MOST_DOMAINS: Final = 256
_COLUMNS: Final = (
    ("Key", "string", ".spec.topologyKey"),
    ("Domains", "string", ".spec.domains"),
    ("Excluded", "string", ".spec.excluded[*].domain"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def crd() -> Schema:
    """The one kind."""
    found = policies.crd(DOMAINS_KIND, "topologydomains", "tdom", "Cluster", _COLUMNS, _object())
    found["spec"]["versions"][0].pop("subresources")
    return found


def _object() -> Schema:
    fields = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _spec(),
    }
    return record(fields, "The domains of a topology key.", required=("spec",))


def _spec() -> Schema:
    domain = text(LABEL_VALUE, 63)
    moment: Schema = {"type": "string", "format": "date-time"}
    excluded = record(
        {
            "domain": dict(domain),
            "until": moment | {"description": "When it counts again. Absent: once it is taken out of the list."},
            "since": moment | {"description": "Since when, for explanations."},
            "reason": text(longest=256, about="Why, for explanations."),
        },
        required=("domain",),
    )
    fields = {
        "topologyKey": LABEL_KEY_TEXT | {"description": "The label key of nodes."},
        "domains": listed(dict(domain), _MOST_DOMAINS, "Its values, also of domains without a node yet.", is_set=True),
        "excluded": listed(
            excluded, _MOST_DOMAINS, "Domains that take no pod and count for nothing.", keys=("domain",)
        ),
    }
    rules = [rule("self.topologyKey == oldSelf.topologyKey", "may not be changed", ".topologyKey")]
    return record(fields, required=("topologyKey",), rules=rules)
