"""Recorded requests, spoiled: fields lost, repeated, of other types and with odd values, at any depth; bytes lost or turned.

Strategies only draw: what is to come of such a request is said in `test_fuzz.py`.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from hypothesis import strategies as st

from tests.builders import PREFERRED, REQUIRED, Json

Slot = tuple[Any, Any]  # a dict and one of its keys, or a list and a position


def _raw(text: str | bytes) -> Any:
    """What no serialiser would write."""
    return orjson.Fragment(text)


_DEEP: Final = 20_000
_TEXTS: Final = ("", " ", "a", "a b", "-", "ключ", "\u0000", "\U0001f600" * 3, "../..", "x" * 300, "y" * 70_000)
_NUMBERS: Final = (-1, 0, 1, 101, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 1.0, 1.5, 1e300)
_RAW: Final = tuple(
    _raw(text)
    for text in (
        *("NaN", "Infinity", "-Infinity", "1e999", "-0", "9" * 25, "-" + "9" * 400, "9" * 5000, "0" * 10),
        *('"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"', "'a'"),
        *("[" * _DEEP + "]" * _DEEP, '{"a":' * _DEEP + "1" + "}" * _DEEP, "[" * 900 + "]" * 900, "tru", ""),
    )
)
_SHAPES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": ""},
    {"a": None},
    ["a", 1],
    [""],
    "true",
    "null",
)
ANYTHING: Final = (*_TEXTS, *_NUMBERS, *_RAW, *_SHAPES)

_AMOUNTS: Final = (
    *(
        "0",
        "-1",
        "1e3",
        "1E",
        "1Ei",
        "99999999999Ei",
        "1e-9",
        "1n",
        "0.1m",
        ".",
        "+",
        "1_0",
        "\u0661",
        "1 ",
        "--1",
        "1e+",
    ),
    *("1e99999", "1e999999", "1e999999999", "-1e999999999", "1e-999999999", "9" * 5000, "NaN", "sNaN", "Infinity"),
)
_REQUIREMENTS: Final = tuple(
    {"key": key, "operator": operator, "values": values}
    for key, operator, values in (
        ("app", "Near", ["a"]),
        ("app", "in", ["a"]),
        ("app", "In", []),
        ("app", "In", None),
        ("app", "Exists", ["a"]),
        ("app", "In", ["a b", "-"]),
        ("app", "NotIn", ["x" * 64]),
        ("a b", "Exists", None),
        ("", "DoesNotExist", None),
        ("app", "Gt", ["1"]),
        ("app", "Lt", ["9" * 5000]),
        ("kubernetes.io/hostname", "Gt", ["-1", "2"]),
    )
)
_SELECTORS: Final = (
    None,
    {},
    {"matchLabels": {"a b": "c"}},
    {"matchLabels": {"app": "x" * 64}},
    *({"matchExpressions": [each]} for each in _REQUIREMENTS),
)
_TIMES: Final = (
    *("2026-11-20T17:22:56", "2026-11-20T17:22:56Z", "2026-11-20T17:22:56+23:59", "2026-11-20", "now"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-11-20T17:22:56.999999999999Z"),
)
_KEYS: Final = ("zone", "kubernetes.io/hostname", "topology.kubernetes.io/zone", "a/b/c", *_TEXTS)
_TERMS: Final = tuple(
    {"topologyKey": key, "labelSelector": selector, "namespaceSelector": {}}
    for key, selector in zip(_KEYS, _SELECTORS, strict=False)
)
_WEIGHTED: Final = tuple(
    [{"weight": weight, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}]
    for weight in (*_NUMBERS, _raw("9" * 400), "1")
)
_CONSTRAINTS: Final[tuple[Json, ...]] = tuple(
    {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": {}, "minDomains": domains}
    for skew, key, action, domains in (
        (-1, "topology.kubernetes.io/zone", "DoNotSchedule", None),
        (0, "topology.kubernetes.io/zone", "ScheduleAnyway", 1),
        (2**31, "topology.kubernetes.io/zone", "DoNotSchedule", 2**31),
        (_raw("9" * 400), "topology.kubernetes.io/zone", "ScheduleAnyway", None),
        (1, "", "DoNotSchedule", -1),
        (1, "a b", "ScheduleAnyway", None),
        (1, "kubernetes.io/hostname", "Whenever", 0),
        (1, "kubernetes.io/hostname", "ScheduleAnyway", 1.5),
    )
)

# Values that are read, and odd: by the name of the field.
ODD: Final[dict[str, Sequence[Any]]] = {
    "affinity": (
        *({"podAntiAffinity": {REQUIRED: [term]}} for term in _TERMS),
        *({"podAffinity": {REQUIRED: [term, term]}} for term in _TERMS),
        *({"podAffinity": {PREFERRED: weighted}} for weighted in _WEIGHTED),
        *({"podAntiAffinity": {PREFERRED: weighted}} for weighted in _WEIGHTED),
        *(
            {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{where: [each]}]}}}
            for where in ("matchExpressions", "matchFields")
            for each in _REQUIREMENTS
        ),
    ),
    "topologySpreadConstraints": tuple([each, each] for each in _CONSTRAINTS),
    "labelSelector": _SELECTORS,
    "namespaceSelector": _SELECTORS,
    "topologyKey": _KEYS,
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", "Near", ""),
    "maxSkew": (*_NUMBERS, _raw("9" * 400)),
    "minDomains": (*_NUMBERS, _raw("9" * 400)),
    "weight": (*_NUMBERS, _raw("9" * 400)),
    "priority": (*_NUMBERS, _raw("9" * 400)),
    "NumPDBViolations": (*_NUMBERS, _raw("9" * 25)),
    "cpu": _AMOUNTS,
    "memory": _AMOUNTS,
    "requests": tuple({"cpu": amount, "memory": amount} for amount in _AMOUNTS),
    "startTime": _TIMES,
    "deletionTimestamp": _TIMES,
    "status": tuple({"startTime": time, "nominatedNodeName": "node-1"} for time in _TIMES),
    "NodeNames": (["node-1"] * 3, ["", "nowhere"], [f"node-{n}" for n in range(4000)], ["node-0", "node-0", "gone"]),
    "UID": ("unknown", "", "x" * 300),
    "uid": ("", "x" * 300, "a/b"),
    "nodeName": ("node-1", "nowhere"),
}
_TOP: Final = ("metadata", "spec")  # of the pod; absent fields are put here


def _copied(value: Any) -> Any:
    """A copy that may be spoiled; `copy` does not take raw text."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list | tuple) else value


def _value(draw: st.DrawFn, pool: Sequence[Any]) -> Any:
    return _copied(draw(st.sampled_from(pool)))


def _slots(value: Any, name: str = "") -> list[tuple[str, Slot]]:
    """Every place below a value with the name of its field; an item of a list goes by the list's name."""
    found: list[tuple[str, Slot]] = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        own = key if isinstance(key, str) else name
        found += [(own, (value, key)), *_slots(item, own)]
    return found


@st.composite
def _slot(draw: st.DrawFn, body: Json) -> tuple[str, Slot]:
    """A place, by name first: else most of them would lie in lists of nodes."""
    slots = _slots(body)
    name = draw(st.sampled_from(sorted({name for name, _ in slots})))
    return draw(st.sampled_from([found for found in slots if found[0] == name]))


def _drop(draw: st.DrawFn, body: Json) -> None:
    _, (where, key) = draw(_slot(body))
    del where[key]


def _replace(draw: st.DrawFn, body: Json) -> None:
    _, (where, key) = draw(_slot(body))
    where[key] = _value(draw, ANYTHING)


def _make_odd(draw: st.DrawFn, body: Json) -> None:
    """An odd value where the field is, or else in the pod's metadata or spec."""
    name = draw(st.sampled_from(sorted(ODD)))
    places = [slot for found, slot in _slots(body) if found == name and isinstance(slot[1], str)]
    pod = body.get("Pod")
    spare = [(pod[part], name) for part in _TOP if isinstance(pod, dict) and isinstance(pod.get(part), dict)]
    where, key = draw(st.sampled_from(places or spare or [(body, name)]))
    where[key] = _value(draw, ODD[name])


def _repeat(draw: st.DrawFn, body: Json) -> None:
    """An item of a list comes several times, a field of an object twice and with two values."""
    _, (where, key) = draw(_slot(body))
    if isinstance(where, list):
        where.extend([where[key]] * draw(st.sampled_from((1, 2, 50))))
    elif isinstance(where[key], dict) and where[key]:
        name = draw(st.sampled_from(sorted(where[key])))
        value = _dumped(_value(draw, ANYTHING))
        where[key] = _raw(_dumped(where[key])[:-1] + b"," + orjson.dumps(name) + b":" + value + b"}")


def _add(draw: st.DrawFn, body: Json) -> None:
    """A field that no type has, or one that is known elsewhere."""
    _, (where, _) = draw(_slot(body))
    if isinstance(where, dict):
        where[draw(st.sampled_from((*_TEXTS, *sorted(ODD), "nodenames", "POD")))] = _value(draw, ANYTHING)


_WAYS: Final[Sequence[Callable[[st.DrawFn, Json], None]]] = (_drop, _replace, _make_odd, _make_odd, _repeat, _add)


def _dumped(value: Any) -> bytes:
    return orjson.dumps(value)


@st.composite
def spoiled_fields(draw: st.DrawFn, bodies: Sequence[Json]) -> bytes:
    """A body with one to three of its fields spoiled."""
    body = _value(draw, bodies)
    for way in draw(st.lists(st.sampled_from(_WAYS), min_size=1, max_size=3)):
        if body:
            way(draw, body)
    return _dumped(body)


@st.composite
def spoiled_bytes(draw: st.DrawFn, bodies: Sequence[Json]) -> bytes:
    """A body cut off, with bytes turned or thrown in, or in another encoding."""
    body = bytearray(_dumped(draw(st.sampled_from(bodies))))
    at = draw(st.integers(0, len(body) - 1))
    match draw(st.sampled_from(("cut", "turn", "insert", "take out", "encode", "mark", "double", "empty"))):
        case "cut":
            del body[at:]
        case "turn":
            for place in draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=8)):
                body[place] ^= draw(st.integers(1, 255))
        case "insert":
            body[at:at] = draw(st.binary(min_size=1, max_size=8))
        case "take out":
            del body[at : at + draw(st.integers(1, 40))]
        case "encode":
            return bytes(body).decode().encode(draw(st.sampled_from(("utf-16", "utf-32", "utf-7"))))
        case "mark":
            return b"\xef\xbb\xbf" + body
        case "double":
            return bytes(body + body)
        case _:
            return draw(st.sampled_from((b"", b" ", b"null", b"[]", b"0", b'""', b"{}", b"\x00")))
    return bytes(body)


@dataclass(frozen=True)
class Sent:
    """One request as it goes out."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    in_pieces: int = 0


@st.composite
def spoiled_requests(draw: st.DrawFn, path: str, bodies: Sequence[Json]) -> Sent:
    """A good body in a request that is wrong about it, by method, path, type, encoding or length."""
    body = _dumped(draw(st.sampled_from(bodies)))
    zipped = gzip.compress(body, mtime=0)  # the same example every time
    packed = draw(st.sampled_from((body, zipped, zipped[:-9], gzip.compress(body * 40, mtime=0))))
    headers = {
        "Content-Type": draw(
            st.sampled_from(("application/json", "text/plain; charset=latin-1", "\u00e4", "", "a/b/c"))
        ),
        "Content-Encoding": draw(
            st.sampled_from(("", "identity", "gzip", "deflate", "br", "zstd", "rot13", "gzip, gzip"))
        ),
        "Accept": draw(st.sampled_from(("*/*", "application/vnd.kubernetes.protobuf", "image/png"))),
        "Expect": draw(st.sampled_from(("", "", "", "100-continue", "miracles"))),
    }
    method = draw(st.sampled_from(("POST", "POST", "POST", "GET", "PUT", "DELETE", "PATCH", "OPTIONS", "SPOIL")))
    suffix = draw(st.sampled_from(("", "", "", "?a=b", "/", "%2f", "//", "/%00", "#a")))
    pieces = draw(st.sampled_from((0, 0, 1, 100)))
    return Sent(method, path + suffix, packed, {name: value for name, value in headers.items() if value}, pieces)
