"""Quantities and resource vectors: integers in milli-CPU for ``cpu`` and in units (bytes) for everything else.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_UP, Context, Decimal
from functools import lru_cache

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal("1e3")}
_DECIMAL |= {"M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18")}
_FACTORS = _DECIMAL | {suffix: Decimal(factor) for suffix, factor in _BINARY.items()}
# A decimal exponent replaces the suffix: `1e3k` is no quantity.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:[eE](?P<sign>[+-]?)(?P<power>[0-9]+)|(?P<suffix>[KMGTPE]i|[numkMGTPE]?))"
)
_MOST = 2**63 - 1  # larger quantities count as this, as in Kubernetes
_HUGE, _TINY = Decimal("1e30"), Decimal("1e-30")  # beyond these bounds no suffix changes the result
_LONGEST_POWER = 9  # digits; no text that fits into memory has enough digits to balance a longer exponent
_WIDE = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)  # so that a shift of the decimal point is exact
_ROUNDING = Context(prec=28, rounding=ROUND_UP)  # away from zero; digits beyond the 28th round up too

_USUAL_LENGTH = 32
_PLAIN_LENGTH = 15  # digits; a thousand times such a number is at most _MOST

CPU = "cpu"
MEMORY = "memory"
EPHEMERAL_STORAGE = "ephemeral-storage"
PODS = "pods"
HUGE_PAGES = "hugepages-"

UNSET_CPU = 100  # milli-CPU; see `scored_requests`
UNSET_MEMORY = 200 * 2**20

Resources = Mapping[str, int]


def is_of_pod_level(name: str) -> bool:
    """Whether a resource may be requested for the pod as a whole (KEP-2837)."""
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity."""


def parse_quantity(text: str, *, milli: bool = False) -> int:
    """The quantity in units, or in thousandths when ``milli``; fractions round away from zero as Kubernetes does.

    Takes no longer for ``1e999999999`` than for ``1``. Long texts are not cached.
    """
    # Most quantities are plain digits: faster than a look-up, and they take no place in the cache.
    if len(text) <= _PLAIN_LENGTH and text.isascii() and text.isdigit():
        return int(text) * (1000 if milli else 1)
    return _remembered(text, milli) if len(text) <= _USUAL_LENGTH else _parse_quantity(text, milli)


def _parse_quantity(text: str, milli: bool) -> int:  # noqa: FBT001 (given by position, as part of a cache's key)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(f'"{text}" is not a quantity')
    number = Decimal(match["number"])
    # A long exponent is cut to a number that is still out of bounds, so that it takes no time.
    if match["power"]:
        power = match["power"].lstrip("0") or "0"
        digits = power if len(power) <= _LONGEST_POWER else "9" * _LONGEST_POWER
        number = number.scaleb(int(match["sign"] + digits), _WIDE)
    if not number:
        return 0
    size, sign = number.copy_abs(), 1 if number > 0 else -1
    # Beyond these bounds the suffix does not matter.
    if size >= _HUGE:
        return sign * _MOST
    # Anything above zero rounds up to one unit.
    if size <= _TINY:
        return sign
    value = _ROUNDING.multiply(size, _FACTORS[match["suffix"] or ""] * (1000 if milli else 1))
    return sign * min(int(value.to_integral_value(ROUND_UP)), _MOST)


_remembered = lru_cache(maxsize=4096)(_parse_quantity)


def parse_resources(quantities: Mapping[str, str | float]) -> dict[str, int]:
    """A resource list as integers by name; raises ``QuantityError``. A quantity may be a number in JSON."""
    return {name: parse_quantity(str(quantity), milli=name == CPU) for name, quantity in quantities.items()}


def quantity_text(name: str, amount: int) -> str:
    """An amount of a resource as Kubernetes writes it: ``500m``, ``2``, ``16Gi``."""
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    suffix = next((unit for unit in reversed(_BINARY) if amount and amount % _BINARY[unit] == 0), "")
    return f"{amount // _BINARY.get(suffix, 1)}{suffix}"


def add(into: dict[str, int], amount: Resources, sign: int = 1) -> None:
    """Adds (or with ``sign`` -1 takes away) in place; a resource that falls to zero is dropped."""
    for name, number in amount.items():
        total = into.get(name, 0) + sign * number
        if total:
            into[name] = total
        else:
            into.pop(name, None)


def total(parts: Iterable[Resources]) -> dict[str, int]:
    """The sum of the parts."""
    result: dict[str, int] = {}
    for part in parts:
        add(result, part)
    return result


def largest(parts: Iterable[Resources]) -> dict[str, int]:
    """The greatest amount of each resource over the parts."""
    result: dict[str, int] = {}
    for part in parts:
        for name, number in part.items():
            result[name] = max(number, result.get(name, 0))
    return result


def scored_requests(requests: Resources) -> tuple[int, int]:
    """The milli-CPU and bytes of memory that a pod counts with in scores. Without requests a pod counts with defaults.

    kube-scheduler takes the same defaults for each container without requests.
    """
    return requests.get(CPU) or UNSET_CPU, requests.get(MEMORY) or UNSET_MEMORY


def share_of_unit(allocatable: Resources, name: str) -> float:
    """One unit of the resource as a share of the node; 0 where the node does not offer the resource."""
    offered = allocatable.get(name, 0)
    return 1 / offered if offered > 0 else 0.0
