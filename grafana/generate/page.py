"""Pictures of the page that README shows, in Chromium: `python -m grafana.generate page`.

The picture of a topology has a generated cluster. `tests/page/measuring.py` takes larger ones from here.
"""

import re
import struct
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson

from extender.compose.service import service_of_objects
from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.settings.connections import Server
from extender.wire.snapshots import decode_snapshot
from tests.builders import namespace_json, node_json, pod_json, spread, term
from tests.page.browser import Browser, browser
from tests.page.serving import played

Json = dict[str, Any]

ZONES: Final = ("north", "east", "west")
NAMESPACES: Final = ("shop", "search", "data", "batch")
_NODE: Final = {"cpu": "16", "memory": "64Gi", "pods": "110"}
_REPLICAS: Final = (3, 12, 40, 150)
_PENDING: Final = 1000  # one pod in so many


def cluster_json(nodes: int, pods: int, seed: int = 1) -> Iterator[Json]:
    """Nodes in three zones and a rack for each 40 of them, and pods of workloads of different sizes, some with constraints.

    One pod in a thousand is pending: a replica of a workload that keeps apart by zone.
    """
    rng = Random(seed)
    for name in NAMESPACES:
        yield {"apiVersion": "v1", "kind": "Namespace", **namespace_json(name, team=name)}
    names = []
    for at in range(nodes):
        names.append(f"node-{at:04}")
        labels = {"example.com/rack": f"rack-{at // 40:03}"}
        made = node_json(names[-1], zone=ZONES[at % 3], labels=labels, allocatable=_NODE, unschedulable=at % 61 == 60)
        yield {"apiVersion": "v1", "kind": "Node", **made}
    load = [rng.uniform(0.2, 1.6) for _ in names]  # nodes are not equally full
    left, workload = pods, 0
    while left > 0:
        replicas = min(left, rng.choice(_REPLICAS))
        yield from _workload(workload, rng.choices(names, load, k=replicas), rng)
        left -= replicas
        workload += 1


def _workload(number: int, places: list[str], rng: Random) -> Iterator[Json]:
    """The pods of one workload, on these nodes."""
    app = f"app-{number}"
    kind = number % 4
    constraints: Json = {}
    if kind == 1:
        constraints["spreads"] = [spread("zone", max_skew=5, hard=False, app=app)]
    if kind == 2:
        constraints["avoids"] = [{"weight": 1, "podAffinityTerm": term("host", app=app)}]
    requests = {"cpu": rng.choice(("100m", "250m", "500m")), "memory": rng.choice(("128Mi", "512Mi", "1Gi"))}
    namespace = NAMESPACES[number % len(NAMESPACES)]
    for at, place in enumerate(places):
        made = pod_json(
            f"{app}-{at}",
            on=place,
            namespace=namespace,
            uid=f"{app}-{at}",
            labels={"app": app},
            requests=requests,
            **constraints,
        )
        yield {"apiVersion": "v1", "kind": "Pod", **_created(made, number)}
    if number * sum(_REPLICAS) // len(_REPLICAS) % _PENDING < sum(_REPLICAS) // len(_REPLICAS):
        waiting = pod_json(
            f"{app}-waits", namespace=namespace, uid=f"{app}-w", labels={"app": app}, apart=[term("zone", app=app)]
        )
        yield {"apiVersion": "v1", "kind": "Pod", **_created({**waiting, "status": {"phase": "Pending"}}, number)}


def _created(pod: Json, number: int) -> Json:
    pod["metadata"]["creationTimestamp"] = f"2026-01-01T{number // 60 % 24:02}:{number % 60:02}:00Z"
    return pod


FOLDER: Final = Path(__file__).resolve().parents[1] / "pictures"
SCHEMES: Final = ("light", "dark")
_SIZE: Final = (1200, 760)
_NODES, _PODS = 420, 6000
_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_KEYWORD: Final = b"Description"
_LENGTH: Final = 4  # bytes, of the length, the type and the checksum of a chunk


@dataclass(frozen=True, slots=True)
class View:
    """A view that README shows: the name of its pictures, its address, and texts that it has once it is complete."""

    name: str
    address: str
    words: tuple[str, ...]


PENDING: Final = View(
    "page-pending", "pending", ("label team=shop on namespace data", "Pods that it must be apart from")
)
TOPOLOGY: Final = View(
    "page-topology",
    "topology?namespace=data&selector=app%3Dapp-22",
    ("Pods that match", "west"),
)


def path_of(view: View, scheme: str) -> Path:
    """The file of a picture."""
    return FOLDER / f"{view.name}-{scheme}.png"


@asynccontextmanager
async def serving(view: View) -> AsyncIterator[str]:
    """The URL of a service whose page shows the view."""
    if view is PENDING:
        async with played() as service:
            yield service.url
        return
    items = list(cluster_json(_NODES, _PODS))
    settings = Settings(server=Server(bind_address=Address("127.0.0.1:0")))
    objects = decode_snapshot(orjson.dumps({"kind": "List", "items": items}), settings.limits).objects
    async with service_of_objects(settings, objects, Random(1)).listening() as url:
        yield url


async def shown(window: Browser, url: str, view: View, scheme: str = SCHEMES[0]) -> str:
    """The text of a view once it is complete, without what differs from one time to the next."""
    width, height = _SIZE
    await window.emulate(width, height, color_scheme=scheme, reduced_motion="reduce")
    await window.open("about:blank")
    await window.open(f"{url}/ui/#/{view.address}")
    await window.until_text(*view.words)
    await window.until("return !/…|on the map\\.$/m.test(document.querySelector('main').innerText)")
    return steady(await window.script("return document.body.innerText"))


def steady(text: str) -> str:
    """A text without ages, and with one space for any space."""
    return re.sub(r"\s+", " ", re.sub(r"for [\d ]+(s|min|h|d)\b( \d+ (min|h))?", "for a while", text)).strip()


async def write_page_pictures() -> None:
    """Write each view in each scheme, with its text in the file."""
    async with browser() as window:
        for view in (PENDING, TOPOLOGY):
            async with serving(view) as url:
                for scheme in SCHEMES:
                    text = await shown(window, url, view, scheme)
                    path_of(view, scheme).write_bytes(with_text(await window.picture(), text))


def with_text(picture: bytes, text: str) -> bytes:
    """A PNG with a text in it, before its first chunk of pixels. https://www.w3.org/TR/png-3/#11iTXt ."""
    body = _KEYWORD + b"\0\0\0\0\0" + text.encode()
    at = picture.index(b"IDAT") - _LENGTH
    return picture[:at] + _chunk(b"iTXt", body) + picture[at:]


def text_in(picture: bytes) -> str:
    """The text in a PNG; empty where there is none."""
    at = len(_SIGNATURE)
    while at < len(picture):
        (length,) = struct.unpack(">I", picture[at : at + _LENGTH])
        kind, body = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        if kind == b"iTXt" and body.startswith(_KEYWORD):
            return body.removeprefix(_KEYWORD + b"\0\0\0\0\0").decode()
        at += length + 3 * _LENGTH
    return ""


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
