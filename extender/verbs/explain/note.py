"""What an event on a rejected pod says: the parts of its rejection that kube-scheduler's own line lacks.

The line of kube-scheduler counts nodes by reason. The note has the rules, the domains with what they count and what would
pass, and the objects to blame. Its length is bounded, as events.k8s.io/v1 rejects a note above 1 KiB. Users who may read
the pod's namespace may read the note, so it names no object of another namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from extender.model.answers.explanations import ConstraintState, DomainState, Explanation, Obstacle
from extender.model.resources import CPU
from extender.model.units import agreeing, counted

MOST_BYTES: Final = 900  # leaves room for how often the pod was rejected
_MOST_DOMAINS: Final = 4
_MORE_BYTES: Final = 24
_LONGEST_SELECTOR: Final = 120  # characters

_NAMESPACED: Final = re.compile(r"([a-z0-9-]+)/")

_POD, _OBJECT = "a pod", "an object"
_OTHERS: Final = {_POD: "pods", _OBJECT: "objects"}

_HEADS: Final = {
    "podAffinity": "pod affinity",
    "podAntiAffinity": "pod anti-affinity",
    "existingPodAntiAffinity": "anti-affinity of existing pods",
    "topologySpread": "topology spread",
}


def rejection_note(found: Explanation) -> str:
    """The note; empty where a node passes filter now, or nothing rejects the pod. Equal explanations have equal notes."""
    if found.passing:
        return ""
    shown = [state for state in found.constraints if _rejects(state)]
    by_domain = {state.rule for state in shown}
    namespace = found.pod.partition("/")[0]
    parts = [_constraint(state, namespace) for state in shown]
    parts += [_obstacle(each, namespace) for each in found.obstacles if each.rule not in by_domain]
    return _joined(parts)


def _joined(parts: Sequence[str]) -> str:
    """As many whole parts as fit, and how many more there are; the first one is cut where it does not fit alone."""
    text = ""
    for at, part in enumerate(parts):
        longer = f"{text}; {part}" if text else part
        if len(longer.encode()) > MOST_BYTES - _MORE_BYTES:
            if text:
                return f"{text}; and {len(parts) - at} more"
            longer = f"{longer.encode()[: MOST_BYTES - _MORE_BYTES].decode(errors='ignore')}…"
        text = longer
    return text


def _rejects(state: ConstraintState) -> bool:
    return any(not domain.passes for domain in state.domains) or (bool(state.lacking) and _rejects_lacking(state))


def _rejects_lacking(state: ConstraintState) -> bool:
    """Whether the constraint rejects nodes without its topology key."""
    return state.kind in {"podAffinity", "topologySpread"}


def _constraint(state: ConstraintState, namespace: str) -> str:
    """One constraint with the domains that reject, the fullest first."""
    return f"{_head(state, namespace)}: {', '.join(_domains(state, namespace))}"


def _head(state: ConstraintState, namespace: str) -> str:
    text = f"{_HEADS[state.kind]} by {state.topology_key}"
    if state.carrier:
        return f"{text}, of {_readable((state.carrier,), namespace)} for example"
    if state.kind == "topologySpread":
        text += f" (maxSkew {state.max_skew}, minimum {state.minimum} of {counted(state.eligible, 'domain')})"
    return f"{text} with pods {_short(state.pods)}" if state.pods else text


def _domains(state: ConstraintState, namespace: str) -> Iterator[str]:
    rejecting = [domain for domain in state.domains if not domain.passes]
    for domain in rejecting[:_MOST_DOMAINS]:
        yield f"{domain.domain}: {_count(state, domain, namespace)}"
    if (more := len(rejecting) - _MOST_DOMAINS) > 0:
        # Those that reject are listed first, so further ones may reject only where all that are listed do.
        least = "at least " if state.more_domains and len(rejecting) == len(state.domains) else ""
        yield f"{least}{counted(more, 'more domain')}"
    if state.lacking and _rejects_lacking(state):
        yield f"{counted(state.lacking, 'node')} {agreeing(state.lacking, 'lacks', 'lack')} the label"


def _count(state: ConstraintState, domain: DomainState, namespace: str) -> str:
    """What a domain counts and what would pass, with the pods."""
    if state.limit is None:
        return "no such pod"
    return (
        f"{domain.count} counted, {state.limit} would pass{_because(_readable(domain.pods, namespace, domain.count))}"
    )


def _obstacle(each: Obstacle, namespace: str) -> str:
    """A rule that counts by no domain."""
    limit = "" if each.limit is None else f", {each.count} counted and {each.limit} would pass"
    # A limit that the text has named already, as "17 topology keys, limits.topologyKeys is 16", is not named again.
    blamed = _readable([name for name in each.blamed if f"limits.{name}" not in each.text], namespace, what=_OBJECT)
    if each.rule == "NodeFit":  # a taint, whose key may look like a pod, or a resource
        unit = "m" if each.blamed == (CPU,) else ""
        limit = "" if each.limit is None else f", {each.count}{unit} needed and {max(each.limit, 0)}{unit} left at most"
        blamed = ", ".join(each.blamed)
    return f"{each.rule}: {each.text}{_because(blamed)}{limit}, on {_some(each.examples, each.nodes)}"


def _because(blamed: str) -> str:
    return f" (because of {blamed})" if blamed else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SELECTOR else f"{text[:_LONGEST_SELECTOR]}…"


def _readable(names: Sequence[str], namespace: str, count: int = 0, what: str = _POD) -> str:
    """The names without objects of other namespaces, which are only counted."""
    own = [name for name in names if not _is_of_another(name, namespace)]
    if names and not own:
        return f"{what} of another namespace" if max(len(names), count) == 1 else f"{_OTHERS[what]} of other namespaces"
    return _some(own, max(len(names), count))


def _is_of_another(name: str, namespace: str) -> bool:
    """Whether this is `namespace/name` of another namespace; a resource has a dot before the slash, a policy a capital."""
    found = _NAMESPACED.match(name)
    return found is not None and found[1] != namespace


def _some(names: Sequence[str], count: int) -> str:
    more = f" and {count - len(names)} more" if names and count > len(names) else ""
    return ", ".join(names) + more
