"""JSON of a ResourceQuota to `PodQuota`, and what quotas read of the JSON of a pod."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from extender.features.quotas.charges import CROSS_NAMESPACE_SCOPE, is_charged
from extender.model.bounded import PreparedValue, Steps
from extender.model.objects import NO_FACTS, NO_RESOURCES, PodQuota, QuotaFacts, QuotaScope
from extender.model.resources import QuantityError, Resources, parse_quantity
from extender.wire.errors import WireError
from extender.wire.objects.amounts import Quantities, limits_of, summed
from extender.wire.objects.objects_json import MetaJson, PodJson, Quantity
from extender.wire.objects.resizes import Parts, Resized, Shown, limit_parts

_A_STEP: Final = 2000  # limits, at 0.3 to 3 µs
_CPU: Final = re.compile(r"(requests\.|limits\.)?cpu")


class _ScopeJson(msgspec.Struct, rename="camel", gc=False):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class _ScopeSelectorJson(msgspec.Struct, rename="camel", gc=False):
    match_expressions: list[_ScopeJson] | None = None


class _QuotaSpecJson(msgspec.Struct, rename="camel", gc=False):
    hard: dict[str, Quantity] | None = None
    scopes: list[str] | None = None
    scope_selector: _ScopeSelectorJson | None = None


class QuotaJson(msgspec.Struct, rename="camel", gc=False):
    """ResourceQuota. Its status is not read: usage is counted here, and the limit is the current one in the spec."""

    metadata: MetaJson | None = None
    spec: _QuotaSpecJson | None = None


def _charged(hard: Quantities) -> Steps[tuple[Resources, tuple[str, ...]]]:
    """By name the amounts that pods use up, and the names of the others. Raises ``WireError`` naming the field."""
    charged: dict[str, int] = {}
    others: list[str] = []
    for at, (name, amount) in enumerate(hard.items(), start=1):
        if not is_charged(name):
            others.append(name)
            continue
        try:
            # CPU is counted in thousandths of a core, also as `requests.cpu` and `limits.cpu`.
            charged[name] = parse_quantity(str(amount), milli=_CPU.fullmatch(name) is not None)
        except QuantityError as error:
            raise WireError(f"spec.hard.{name}", str(error)) from None
        if not at % _A_STEP:
            yield
    return charged, tuple(sorted(others))


QUOTA_AMOUNTS: Final = PreparedValue(_charged)


_NO_META: Final = MetaJson()
_NO_QUOTA_SPEC: Final = _QuotaSpecJson()


def trim_quota(raw: QuotaJson) -> PodQuota:
    """Converts a quota. Raises ``WireError`` naming the field, but only for a quota with the scope.

    The API server has validated it. Names that pods do not use up are kept separately. An unknown operator or scope
    matches no pod.
    """
    meta, spec = raw.metadata or _NO_META, raw.spec or _NO_QUOTA_SPEC
    quota = PodQuota(meta.namespace or "", meta.name or "")
    named = [QuotaScope(name) for name in spec.scopes or ()]
    selected = (spec.scope_selector.match_expressions if spec.scope_selector else None) or ()
    scopes = (*named, *(QuotaScope(e.scope_name, e.operator, tuple(sorted(e.values or ()))) for e in selected))
    # Other quotas matter to no decision, so their amounts are not read.
    if not any(scope.name == CROSS_NAMESPACE_SCOPE for scope in scopes):
        return quota
    hard, others = QUOTA_AMOUNTS.read(spec.hard or {})
    return PodQuota(quota.namespace, quota.name, scopes, hard or NO_RESOURCES, others)


def prepare_quota(raw: QuotaJson) -> Steps[None]:
    """The amounts of a quota. Raises ``WireError``."""
    if raw.spec is not None and raw.spec.hard:
        yield from QUOTA_AMOUNTS.prepare(raw.spec.hard)


def quota_facts(raw: PodJson, requests: Parts, shown: Shown | None) -> QuotaFacts:
    """What quotas read of a pod beside its signature and its requests. Called only for the few pods in the scope."""
    if raw.metadata is None or raw.spec is None:
        return NO_FACTS
    return QuotaFacts(
        raw.metadata.creation_timestamp or "",
        limits_of(limit_parts(raw.spec, shown)),
        raw.spec.active_deadline_seconds is not None and raw.spec.active_deadline_seconds >= 0,
        raw.status is not None and raw.status.qos_class == "BestEffort",
        None if shown is None else _quota_requests(requests),
    )


def _quota_requests(parts: Parts) -> Resources | None:
    """What a quota charges, if kube-scheduler counts otherwise: quotas read the pod's own amounts from the spec."""
    containers, init, overhead, pod_level = parts
    return summed(containers, init, overhead, pod_level.spec).now if isinstance(pod_level, Resized) else None
