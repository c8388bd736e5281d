"""README's pictures of the page: `python -m tests.page` opens the views in Chromium, light and dark, and saves them.

Each picture holds the text that it shows, so that a test can tell whether the page still shows it.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import orjson

from extender.compose.service import service_of_objects
from extender.model.units import Address
from extender.settings.configuration import Settings
from extender.settings.connections import Server
from extender.wire.manifests import decode_snapshot
from tests.page.browser import Browser, browser
from tests.page.clusters import cluster_json
from tests.page.serving import played

FOLDER: Final = Path(__file__).resolve().parents[2] / "grafana" / "pictures"
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


async def write_pictures() -> None:
    """Writes all pictures."""
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
