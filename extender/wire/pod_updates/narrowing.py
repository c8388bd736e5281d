"""How the node selector and the node affinity of a gated pod may change: only so that fewer nodes match (KEP-3838).

The rules are about the form and not about the meaning. Required terms keep their number and order, and requirements are
appended to a term; a shorter list of values is refused although it matches fewer nodes. Preferred terms are free.
"""

from __future__ import annotations

from typing import Any, Final

from extender.wire.policies.field_errors import Problems
from extender.wire.policies.node_terms import REQUIRED

_TERMS: Final = f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"


def check_node_selector(found: Problems, old: dict[str, str], new: dict[str, str]) -> None:
    """Keys may be added; one that exists keeps its value."""
    if any(new.get(key) != value for key, value in old.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        found.invalid("spec.nodeSelector", new, text)


def check_node_affinity(found: Problems, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
    """Required terms may be set where there are none, else each only gains requirements at its end."""
    before, after = _required_terms(old), _required_terms(new)
    if not before:
        return
    if len(before) != len(after):
        found.invalid(_TERMS, after, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for number, (term, narrowed) in enumerate(zip(before, after, strict=True)):
        if not _has_only_additions(term, narrowed):
            text = "only additions are allowed (no mutations or deletions)"
            found.invalid(f"{_TERMS}[{number}]", narrowed, text)


def _required_terms(affinity: dict[str, Any] | None) -> list[dict[str, Any]]:
    required = (affinity or {}).get(REQUIRED) or {}
    return required.get("nodeSelectorTerms") or []


def _has_only_additions(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """A term without any requirement matches no node: an addition would widen it."""
    if not old:
        return not new
    for name in ("matchExpressions", "matchFields"):
        kept = old.get(name) or []
        if (new.get(name) or [])[: len(kept)] != kept:
            return False
    return True
