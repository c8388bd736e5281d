"""The block ``release`` of a policy's schema: groups of gated pods. The names and defaults are those of the model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from extender.model.release import MOST_LEVELS, RELEASE_GATE, OnTimeout, ReleaseMode, Replacement, Strategy
from extender.wire.policies.policy_validation import GATE_PREFIX, MOST_PODS
from tests.deploy.policies.schema import LABEL, LABEL_KEY_TEXT, Schema, listed, record, rule, text

_LONGEST_GATE: Final = len(GATE_PREFIX) + 63
_GATE: Final = rf"^{re.escape(GATE_PREFIX)}{LABEL}$"
_LONGEST_DURATION: Final = 32
_DURATION: Final = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"


def release() -> Schema:
    """The block. Whether a policy may have it is a rule of the whole spec (`RULES`)."""
    fields = {
        "gate": text(_GATE, _LONGEST_GATE, "The gate; set when a pod is created. The extender removes no others.")
        | {"default": RELEASE_GATE},
        "group": _one_of(
            {"label": dict(LABEL_KEY_TEXT), "owner": {"type": "boolean", "enum": [True]}},
            "Which pods belong together: the value of a label, or the same controller.",
        )
        | {"default": {"owner": True}},
        "size": _one_of(
            {
                "count": {"type": "integer", "format": "int32", "minimum": 1, "maximum": MOST_PODS},
                "label": dict(LABEL_KEY_TEXT),
                "annotation": dict(LABEL_KEY_TEXT),
            },
            "How many pods a group has: a number, or where its pods tell it. A group is decided once they all wait.",
        )
        | {"default": {"count": 1}},
        "topology": listed(
            dict(LABEL_KEY_TEXT),
            MOST_LEVELS,
            "Label keys of nodes, coarse to fine. A group lands in one domain of the first, and of the finest that holds it.",
            least=1,
        ),
        "mode": _choice(
            "What happens if no domain holds a group: it waits, or it is released without one.", ReleaseMode
        ),
        "strategy": _choice("Which of the domains that hold a group.", Strategy),
        "exclusive": {
            "description": "The domain takes no other group of this policy.",
            "type": "boolean",
            "default": False,
        },
        "decisionTimeout": text(_DURATION, _LONGEST_DURATION, "How long a group waits for its decision.")
        | {"default": "10m"},
        "onTimeout": _choice("What happens then.", OnTimeout),
        "replacement": _choice("Where a pod goes that replaces one of a decided group.", Replacement),
    }
    rules = (
        rule(
            "self.topology.all(key, self.topology.exists_one(other, other == key))", "has a key twice", ".topology",
            "FieldValueDuplicate",
        ),
        rule(
            "!has(self.decisionTimeout) || (duration(self.decisionTimeout) > duration('0s')"
            " && duration(self.decisionTimeout) <= duration('168h'))",
            "must be more than 0 and at most 168h",
            ".decisionTimeout",
        ),
    )  # fmt: skip
    about = "Holds pods at a gate until their group is complete, and releases them together into one domain (KEP-3838)."
    return record(fields, about, required=("topology",), rules=rules)


def _one_of(fields: Mapping[str, Schema], about: str) -> Schema:
    count = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in fields)
    exactly = rule(f"{count} == 1", f"must have exactly one of the fields {', '.join(fields)}")
    return record(fields, about, rules=(exactly,))


def _choice(about: str, choices: type[StrEnum]) -> Schema:
    names = [str(each) for each in choices]
    return text(about=about, choices=names) | {"default": names[0]}


RULES: Final = (
    rule(
        "!has(self.release) || (has(self.when) && 'Release' in self.when)",
        "acts at release only, so `when` must contain Release",
        ".release",
    ),
    rule(
        "!has(self.when) || !('Release' in self.when) || has(self.release)",
        "is needed where `when` contains Release",
        ".release",
        "FieldValueRequired",
    ),
    rule(
        "!has(self.release) || !has(self.nodeName)",
        "may not be specified beside nodeName: the API server refuses a gated pod that has a node",
        ".release",
        "FieldValueForbidden",
    ),
)
