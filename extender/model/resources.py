"""Quantities and resource vectors: integers in milli-CPU for ``cpu`` and in units (bytes) for everything else.

https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1), "k": Decimal("1e3")}
_DECIMAL |= {"M": Decimal("1e6"), "G": Decimal("1e9"), "T": Decimal("1e12"), "P": Decimal("1e15"), "E": Decimal("1e18")}
_FACTORS = _DECIMAL | {suffix: Decimal(factor) for suffix, factor in _BINARY.items()}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?)(?P<suffix>[KMGTPE]i|[numkMGTPE]?)"
)
_MOST = 2**63 - 1  # what is larger counts as this, as in Kubernetes
_HUGE, _TINY = Decimal("1e30"), Decimal("1e-30")  # beyond these no suffix matters

_USUAL_LENGTH = 32

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"

Resources = Mapping[str, int]


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity."""


def parse_quantity(text: str, *, milli: bool = False) -> int:
    """The quantity in units, or in thousandths when ``milli``; fractions round up as Kubernetes does.

    Takes no longer for ``1e999999999`` than for ``1``. Long texts are not remembered.
    """
    return _remembered(text, milli) if len(text) <= _USUAL_LENGTH else _parse_quantity(text, milli)


def _parse_quantity(text: str, milli: bool) -> int:  # noqa: FBT001 (given by position, as part of a cache's key)
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise QuantityError(f'"{text}" is not a quantity')
    number = Decimal(found["number"])
    size = number.copy_abs()
    if size >= _HUGE:
        return _MOST if number > 0 else -_MOST
    if size <= _TINY:
        return int(number > 0)
    value = number * _FACTORS[found["suffix"]] * (1000 if milli else 1)
    return max(-_MOST, min(math.ceil(value), _MOST))


_remembered = lru_cache(maxsize=4096)(_parse_quantity)


def parse_resources(quantities: Mapping[str, str]) -> dict[str, int]:
    """A resource list as integers by name; raises ``QuantityError``."""
    return {name: parse_quantity(text, milli=name == CPU) for name, text in quantities.items()}


def add(into: dict[str, int], amount: Resources, sign: int = 1) -> None:
    """Adds (or with ``sign`` -1 takes away) in place; a resource that falls to zero is forgotten."""
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
