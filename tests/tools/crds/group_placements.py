"""The CRD of group placements as a document: what is decided for a group of gated pods, and how far its release is."""

from typing import Final

from extender.model.group_placements import MOST_RECORDED
from extender.model.release import MOST_LEVELS, MOST_VALUES, GroupPhase
from tests.tools.crds import policies
from tests.tools.crds.schema import LABEL_KEY_TEXT, LABEL_VALUE, Schema, brought_tolerations, listed, record, rule, text

HEAD: Final = """\
# What is decided for a group of gated pods. The leader writes a GroupPlacement before it releases the first pod of a group,
# and a later leader continues from it.
"""
_LONGEST_POLICY: Final = 400  # kind, namespace and name of a policy
_LONGEST_GROUP: Final = 253
_MOST_PODS: Final = 100_000


_COLUMNS: Final = (
    ("Policy", "string", ".spec.policy"),
    ("Group", "string", ".spec.group"),
    ("Phase", "string", ".status.phase"),
    ("Domain", "string", ".spec.topology[-1:].value"),  # the finest level
    ("Ready", "integer", ".status.ready"),
    ("Released", "integer", ".status.released"),
    ("Bound", "integer", ".status.bound"),
    ("Size", "integer", ".spec.size"),
    ("Age", "date", ".metadata.creationTimestamp"),
)


def crd() -> Schema:
    """The one kind."""
    return policies.crd("GroupPlacement", "groupplacements", "gpl", "Namespaced", _COLUMNS, _object())


def _object() -> Schema:
    fields = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": _spec(),
        "status": _status(),
    }
    return record(fields, "Where the pods of a group are released to. Written by the extender.", required=("spec",))


def _spec() -> Schema:
    value: Schema = {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE}
    level = record(
        {
            "key": dict(LABEL_KEY_TEXT),
            "value": value,
            "values": listed(dict(value), MOST_VALUES, "Where there are several; `value` is the first.", is_set=True),
            "preferred": listed(dict(value), MOST_VALUES, "Those of the values that the pods prefer.", is_set=True),
            "tolerations": brought_tolerations(),
        },
        required=("key", "value"),
    )
    fields = {
        "policy": text(r"^[^\s]+$", _LONGEST_POLICY, "The policy: Kind/namespace/name, or Kind/name."),
        "group": text(
            r"^[^\s]+$", _LONGEST_GROUP, "The value of the group's label, or the UID of its owner, or pod/UID."
        ),
        "gate": LABEL_KEY_TEXT | {"description": "The scheduling gate that is removed from the pods."},
        "size": {
            "description": "Pods that the group has when it is complete.",
            "type": "integer",
            "format": "int32",
            "minimum": 1,
            "maximum": _MOST_PODS,
        },
        "topology": listed(
            level, MOST_LEVELS, "The domain, coarse to fine. Empty: the pods are released unpinned.", keys=("key",)
        ),
        "pods": listed(
            text(r"^[^\s]+$", 128),
            MOST_RECORDED,
            "The UIDs of the pods that are released with the group, where its policy lists or limits domains. They are charged "
            "to its domain until they are gone.",
        ),
        "decided": {"description": "When. Absent: not yet.", "type": "string", "format": "date-time"},
    }
    rules = [
        rule("self.policy == oldSelf.policy", "may not be changed", ".policy"),
        rule("self.group == oldSelf.group", "may not be changed", ".group"),
        rule(
            "has(self.decided) || !has(self.topology) || size(self.topology) == 0",
            "needs the time of the decision",
            ".decided",
            "FieldValueRequired",
        ),
    ]
    return record(fields, required=("policy", "group", "gate", "size"), rules=rules)


def _status() -> Schema:
    counted = {"type": "integer", "format": "int32", "minimum": 0}
    condition = record(
        {
            "type": text(choices=("Placed",)),
            "status": text(choices=("True", "False", "Unknown")),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": text("^[A-Z][A-Za-z0-9]*$", 64),
            "message": text(longest=1024),
        },
        required=("type", "status", "lastTransitionTime", "reason", "message"),
    )
    fields = {
        "phase": text(choices=[str(each) for each in GroupPhase]),
        "ready": counted | {"description": "Pods that exist and have not finished."},
        "released": counted | {"description": "Of these, pods whose gate was removed."},
        "bound": counted | {"description": "Of these, pods that have a node."},
        "message": text(longest=1024, about="Why it waits."),
        "conditions": listed(condition, 4, keys=("type",)),
    }
    return record(fields, "Written by the extender.")
