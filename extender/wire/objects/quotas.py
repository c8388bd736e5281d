"""Converts ResourceQuota objects, and reads of a pod what such quotas count.

Which names a quota with the scope may limit: ``pkg/apis/core/helper`` of Kubernetes; validated by the API server, so here a name
that pods do not use up is kept aside, and an operator or scope that is not known matches no pod.
"""

from __future__ import annotations

import re
from typing import Final

from extender.model.objects import NO_FACTS, NO_RESOURCES, PodQuota, QuotaFacts, QuotaScope
from extender.model.quotas import CROSS_NAMESPACE_SCOPE, is_charged
from extender.model.resources import QuantityError, parse_quantity
from extender.wire.errors import WireError
from extender.wire.objects.objects_json import MetaJson, PodJson, QuotaJson, QuotaSpecJson
from extender.wire.objects.pod_resources import limits_of

_CPU: Final = re.compile(r"(requests\.|limits\.)?cpu")
_NO_META: Final = MetaJson()
_NO_SPEC: Final = QuotaSpecJson()


def trim_quota(raw: QuotaJson) -> PodQuota:
    """Converts a quota. Raises ``WireError`` naming the field, for a quota with the scope only."""
    meta, spec = raw.metadata or _NO_META, raw.spec or _NO_SPEC
    quota = PodQuota(meta.namespace or "", meta.name or "")
    named = [QuotaScope(name) for name in spec.scopes or ()]
    selected = (spec.scope_selector.match_expressions if spec.scope_selector else None) or ()
    scopes = (*named, *(QuotaScope(e.scope_name, e.operator, tuple(sorted(e.values or ()))) for e in selected))
    if not any(scope.name == CROSS_NAMESPACE_SCOPE for scope in scopes):
        return quota
    hard = spec.hard or {}
    return PodQuota(
        quota.namespace,
        quota.name,
        scopes,
        {name: _quantity(name, str(amount)) for name, amount in hard.items() if is_charged(name)} or NO_RESOURCES,
        tuple(sorted(name for name in hard if not is_charged(name))),
    )


def _quantity(name: str, text: str) -> int:
    try:
        return parse_quantity(text, milli=_CPU.fullmatch(name) is not None)
    except QuantityError as error:
        raise WireError(f"spec.hard.{name}", str(error)) from None


def quota_facts(raw: PodJson) -> QuotaFacts:
    """What quotas read of a pod beside its signature and its requests. Called for the few pods in the scope only."""
    if raw.metadata is None or raw.spec is None:
        return NO_FACTS
    return QuotaFacts(
        raw.metadata.creation_timestamp or "",
        limits_of(raw.spec),
        raw.spec.active_deadline_seconds is not None and raw.spec.active_deadline_seconds >= 0,
        raw.status is not None and raw.status.qos_class == "BestEffort",
    )
