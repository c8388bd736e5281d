"""Findings about the schedulers that call the service, by the schedulerName of the pods that they ask about.

Profiles of one kube-scheduler have names of their own and share what it knows, so names alone do not tell how many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from extender.doctor.facts import Facts, Finding

_CHECK: Final = "schedulers"
_NAMED: Final = 5


def examine_schedulers(facts: Facts, profiles: Collection[str] | None = None) -> list[Finding]:
    """Every finding. ``profiles``: those of the scheduler's configuration, None where it is not known. O(samples)."""
    if facts.samples is None or facts.leader:
        return []
    asked = {one.labels["scheduler"] for one in facts.series("extender_scheduler_decisions_total") if one.value}
    many = facts.settings.schedulers == "many"
    return [*_silent(asked, profiles or ())] if many else [*_several(asked, profiles)]


def _several(asked: Collection[str], profiles: Collection[str] | None) -> Iterator[Finding]:
    """Pods of several schedulers, while room is left to each of them."""
    others = sorted(set(asked) - set(profiles or ()))
    remedy = "set schedulers: many, so that constraints and room are exact among them"
    if profiles is not None and others and len(asked) > 1:
        problem = f"schedulers is one, but pods of {_named(others)} are asked about, which no profile of this scheduler places"
        yield Finding("warning", _CHECK, problem, remedy)
    elif profiles is None and len(others) > 1:
        problem = f"schedulers is one, but pods of {len(others)} schedulers are asked about ({_named(others)})"
        yield Finding(
            "info", _CHECK, problem, f"nothing to do if they are profiles of one kube-scheduler; else {remedy}"
        )


def _silent(asked: Collection[str], profiles: Collection[str]) -> Iterator[Finding]:
    """Profiles whose pods were never asked about, while others were: they may place pods without the extender."""
    silent = sorted(set(profiles) - set(asked))
    if asked and silent:
        problem = f"no pod of {_named(silent)} has been asked about since the service started, but pods of {_named(sorted(asked))}"
        remedy = "nothing to do if it had no pod to place; else its configuration lacks the extender, and room is given away twice"
        yield Finding("info", _CHECK, problem, remedy)


def _named(names: Collection[str]) -> str:
    """Some of the names."""
    shown = list(names)[:_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
