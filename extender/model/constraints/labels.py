"""Labels, the well-known topology keys, and what makes a label key or value well formed.

Pure values only. Everything else in the model is built on this module, so it imports nothing of the project.
Syntax: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from enum import StrEnum

Labels = Mapping[str, str]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"

NO_LABELS: Labels = {}

_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME = 63
_MAX_SUBDOMAIN = 253

# The syntax again as regular expressions for JSON schemas, in parts that can be joined with others.
VALUE_PATTERN = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
# The lookahead limits the prefix to 253 characters, which its own repetitions cannot.
KEY_PATTERN = rf"(?:(?=[^/]{{1,253}}/){_LABEL}(?:\.{_LABEL})*/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"
_SHORT = 8  # up to so many values a linear search is faster than a binary search


class Operator(StrEnum):
    """How a requirement compares. ``Gt`` and ``Lt`` are legal for node selectors only."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


def contains(values: tuple[str, ...], wanted: str) -> bool:
    """Whether a sorted tuple contains the value. O(log values)."""
    if len(values) <= _SHORT:
        return wanted in values
    at = bisect_left(values, wanted)
    return at < len(values) and values[at] == wanted


def satisfies(value: str | None, operator: Operator, values: tuple[str, ...]) -> bool:
    """Whether a label's value (None: absent) fulfils a set requirement; ``values`` are sorted. O(log values).

    ``NotIn`` and ``DoesNotExist`` match absence.
    """
    match operator:
        case Operator.IN:
            return value is not None and contains(values, value)
        case Operator.NOT_IN:
            return value is None or not contains(values, value)
        case Operator.EXISTS:
            return value is not None
        case _:
            return value is None


def is_label_value(text: str) -> bool:
    """Whether the text is a valid value of a label; the empty value is."""
    return len(text) <= _MAX_NAME and _VALUE.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Whether the text is a qualified name: an optional DNS prefix and ``/``, then a name of up to 63 characters."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def is_dns_subdomain(text: str) -> bool:
    """Whether the text is a DNS subdomain in lower case (RFC 1123), as the names of most objects are.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
    """
    return len(text) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """Whether the text is a DNS label in lower case (RFC 1123), as the names of namespaces are."""
    return len(text) <= _MAX_NAME and "." not in text and is_dns_subdomain(text)


class LabelKey(str):
    """The key of a label, as a document names it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> LabelKey:
        """Check the syntax. Raises ValueError."""
        if not is_label_key(text):
            raise ValueError(f'expected a label key such as "topology.kubernetes.io/zone", got "{text}"')
        return cls(text)


class ObjectName(str):
    """The name of an API object, as a document names it."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> ObjectName:
        """Check the syntax. Raises ValueError."""
        if not is_dns_subdomain(text):
            raise ValueError(f'expected the name of an object such as "placement-extender", got "{text}"')
        return cls(text)
