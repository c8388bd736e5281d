"""Serves the files of the page, from memory, with headers that forbid the browser everything that the page does not need.

The files (about 130 KB) are read once, when the application is made. A browser requests each file again with every load, and gets
304 where it has the file. So a new version of the extender is shown at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

from aiohttp import ETag, web

PREFIX: Final = "/ui/"
_INDEX: Final = "index.html"
_FOLDER: Final = Path(__file__).parent / "files"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_TAG_CHARACTERS: Final = 20

# https://www.w3.org/TR/CSP3/ : scripts, styles and requests of this origin only, and no script or style inside a document.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # a copy may be kept, and is compared before each use
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    content_type: str
    tag: ETag


def add_page(router: web.UrlDispatcher) -> None:
    """Routes the page. Its URLs are relative, so it works behind a path prefix as well.

    Raises FileNotFoundError where the installed package lacks the files.
    """
    files = _read(_FOLDER)

    async def file(request: web.Request) -> web.Response:
        """`GET /ui/NAME`: one file of the page."""
        served = files.get(request.match_info["name"] or _INDEX)
        if served is None:
            raise web.HTTPNotFound
        response = web.Response(headers=_HEADERS)
        response.etag = served.tag
        if _is_known(request, served.tag):
            response.set_status(HTTPStatus.NOT_MODIFIED)
            return response
        response.body = served.body
        response.content_type, response.charset = served.content_type, "utf-8"
        return response

    router.add_get(PREFIX + "{name:.*}", file)
    router.add_get(PREFIX.rstrip("/"), _with_slash)


async def _with_slash(_: web.Request) -> web.Response:
    """`GET /ui`: relative URLs need the slash at the end."""
    return web.Response(status=HTTPStatus.PERMANENT_REDIRECT, headers={"Location": "ui/"})


def _is_known(request: web.Request, tag: ETag) -> bool:
    """Whether the browser has this version.

    https://www.rfc-editor.org/rfc/rfc9110#section-13.1.2
    """
    return any(known.value in {tag.value, "*"} for known in request.if_none_match or ())


def _read(folder: Path) -> Mapping[str, _File]:
    files = {path.relative_to(folder).as_posix(): _file(path) for path in folder.rglob("*") if path.suffix in _TYPES}
    if _INDEX not in files:
        raise FileNotFoundError(f"{folder / _INDEX}: not installed")
    return files


def _file(path: Path) -> _File:
    body = path.read_bytes()
    return _File(body, _TYPES[path.suffix], ETag(sha256(body).hexdigest()[:_TAG_CHARACTERS]))
