"""The block ``release`` of a policy: how groups of gated pods are put together, placed and let go. Checks and decodes it.

As a CRD it has the same rules (`deploy/policies/crds.yaml`); the defaults are those of `ReleaseSpec`.
"""

from __future__ import annotations

from typing import Any, Final

from extender.model.policies import GROUP, JsonObject, Moment
from extender.model.release import (
    MOST_LEVELS,
    RELEASE_GATE,
    GroupSize,
    OnTimeout,
    ReleaseMode,
    ReleaseSpec,
    Replacement,
    Strategy,
)
from extender.model.units import Duration
from extender.wire.policies.field_errors import ErrorType, Problems
from extender.wire.policies.scheduling_fields import check_label_key

GATE_PREFIX: Final = f"{GROUP}/"
MOST_PODS: Final = 10_000  # of a group
LONGEST_TIMEOUT: Final = 7 * 24 * 3600.0
_PATH: Final = "spec.release"
_CHOICES: Final = {"mode": ReleaseMode, "strategy": Strategy, "onTimeout": OnTimeout, "replacement": Replacement}
RELEASE_FIELDS: Final = ("gate", "group", "size", "topology", "exclusive", "decisionTimeout", *_CHOICES)


def check_release(found: Problems, spec: JsonObject) -> None:
    """Every error of the block in a policy's spec, and of its moment."""
    when = spec.get("when")
    acts = isinstance(when, list) and Moment.RELEASE in when
    if spec.get("release") is None:
        if acts:
            found.required(_PATH, "is needed where `when` contains Release")
        return
    if not acts:
        found.invalid(_PATH, spec["release"], "acts at release only, so `when` must contain Release")
    if spec.get("nodeName"):
        found.forbidden(_PATH, "a pod with a node may have no gate: leave out `nodeName`")
    release = found.read_object(spec["release"], _PATH)
    _check_gate(found, release.get("gate"))
    _check_group(found, release.get("group"))
    _check_size(found, release.get("size"))
    _check_topology(found, release.get("topology"))
    for name, choices in _CHOICES.items():
        found.read_choice(release.get(name), f"{_PATH}.{name}", list(choices))
    if not isinstance(release.get("exclusive", False), bool):
        found.add(ErrorType.TYPE_INVALID, f"{_PATH}.exclusive", "must be true or false", release["exclusive"])
    _check_timeout(found, release.get("decisionTimeout"))


def _check_gate(found: Problems, value: Any) -> None:
    """The admission policy of deploy/base lets the extender remove no other gates."""
    path = f"{_PATH}.gate"
    gate = found.read_text(value, path)
    if gate and not gate.startswith(GATE_PREFIX):
        found.invalid(path, gate, f"must begin with {GATE_PREFIX}: the extender removes no other gates")
    elif value is not None and isinstance(value, str):
        check_label_key(found, gate, path)


def _only_one(found: Problems, value: Any, path: str, names: tuple[str, ...]) -> JsonObject | None:
    """The object if it has exactly one of the fields; None where there is nothing more to check."""
    if value is None:
        return None
    chosen = found.read_object(value, path)
    if len(chosen) != 1 or not chosen.keys() <= set(names):
        found.invalid(path, value, f"must have exactly one of the fields {', '.join(names)}")
        return None
    return chosen


def _check_group(found: Problems, value: Any) -> None:
    path = f"{_PATH}.group"
    group = _only_one(found, value, path, ("label", "owner"))
    if group and "label" in group:
        check_label_key(found, found.read_text(group["label"], f"{path}.label"), f"{path}.label")
    elif group and group["owner"] is not True:
        found.not_supported(f"{path}.owner", group["owner"], ("true",))


def _check_size(found: Problems, value: Any) -> None:
    path = f"{_PATH}.size"
    size = _only_one(found, value, path, ("count", "label", "annotation"))
    if size and "count" in size:
        if found.read_number(size["count"], f"{path}.count", 1, MOST_PODS) is None and size["count"] is None:
            found.required(f"{path}.count", "")
    elif size:
        ((name, key),) = size.items()
        check_label_key(found, found.read_text(key, f"{path}.{name}"), f"{path}.{name}")


def _check_topology(found: Problems, value: Any) -> None:
    path = f"{_PATH}.topology"
    keys = found.read_texts(value, path)
    if not keys:
        found.required(path, "must name at least one label key of nodes")
    if len(keys) > MOST_LEVELS:
        found.add(ErrorType.TOO_MANY, path, f"must have at most {MOST_LEVELS} items", len(keys))
    for number, key in enumerate(keys):
        check_label_key(found, key, f"{path}[{number}]")
        if key in keys[:number]:
            found.add(ErrorType.DUPLICATE, f"{path}[{number}]", "", key)


def _check_timeout(found: Problems, value: Any) -> None:
    path = f"{_PATH}.decisionTimeout"
    text = found.read_text(value, path)
    if value is None or (found.errors and found.errors[-1].field == path):
        return
    try:
        seconds = Duration.parse(text)
    except ValueError as error:
        found.invalid(path, text, str(error))
        return
    if not 0 < seconds <= LONGEST_TIMEOUT:
        found.invalid(path, text, "must be more than 0 and at most 168h")


def read_release(spec: JsonObject) -> ReleaseSpec | None:
    """The block of a valid spec; None where there is none."""
    release = spec.get("release")
    if release is None:
        return None
    group, size = release.get("group") or {}, release.get("size") or {}
    return ReleaseSpec(
        topology=tuple(release["topology"]),
        gate=release.get("gate") or RELEASE_GATE,
        group_label=group.get("label") or "",
        size=GroupSize(size.get("count") or 1, size.get("label") or "", size.get("annotation") or ""),
        mode=ReleaseMode(release.get("mode") or ReleaseMode.REQUIRED),
        strategy=Strategy(release.get("strategy") or Strategy.BEST_FIT),
        exclusive=release.get("exclusive") or False,
        decision_timeout=float(Duration.parse(release.get("decisionTimeout") or "10m")),
        on_timeout=OnTimeout(release.get("onTimeout") or OnTimeout.KEEP_GATED),
        replacement=Replacement(release.get("replacement") or Replacement.SAME_DOMAIN),
    )
