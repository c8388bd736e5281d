"""The files of the page over HTTP: what is served, to which clients, and with which headers."""

from __future__ import annotations

import re
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from extender.model.rejections import Reason
from extender.rules import catalog
from extender.server.page import handler
from extender.settings.connections import Server
from tests.server.serving import Client, Serve

FOLDER: Final = Path(handler.__file__).parent / "files"
FILES: Final = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
LONGEST_FILE: Final = 400  # lines, as for modules
MOST_BYTES: Final = 250_000  # of all files: what a first load fetches


def directives(policy: str) -> dict[str, set[str]]:
    """The sources of a content security policy, by directive."""
    return {name: set(sources) for name, *sources in (part.split() for part in policy.split(";"))}


@pytest.mark.parametrize("name", FILES)
async def test_each_file_is_served_with_its_type_and_the_headers(client: Client, name: str) -> None:
    answer = await client.get(f"/ui/{name}")
    assert (answer.status, await answer.read()) == (HTTPStatus.OK, (FOLDER / name).read_bytes())
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    assert (answer.content_type, answer.charset) == (types[Path(name).suffix], "utf-8")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    policy = directives(answer.headers["Content-Security-Policy"])
    assert policy["default-src"] == {"'none'"}
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == {"'none'"}


async def test_the_document_is_at_the_folder_and_leads_there_without_the_slash(client: Client) -> None:
    assert await (await client.get("/ui/")).read() == (FOLDER / "index.html").read_bytes()
    answer = await client.get("/ui", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (HTTPStatus.PERMANENT_REDIRECT, "ui/")


async def test_a_browser_that_has_a_file_gets_it_again_only_after_a_change(client: Client) -> None:
    tag = (await client.get("/ui/")).headers["ETag"]
    again = await client.get("/ui/", headers={"If-None-Match": f'"other", {tag}'})
    assert (again.status, again.headers["ETag"], await again.read()) == (HTTPStatus.NOT_MODIFIED, tag, b"")
    assert "Content-Security-Policy" in again.headers
    assert (await client.get("/ui/", headers={"If-None-Match": '"other"'})).status == HTTPStatus.OK


@pytest.mark.parametrize("name", ["none.js", "../handler.py", "%2e%2e/handler.py", "views", "views/", "/etc/passwd"])
async def test_nothing_else_is_served(client: Client, name: str) -> None:
    assert (await client.get(f"/ui/{name}")).status == HTTPStatus.NOT_FOUND


async def test_the_page_can_be_switched_off(serve: Serve) -> None:
    client = await serve(server=Server(page=False))
    assert [(await client.get(path)).status for path in ("/ui", "/ui/", "/ui/main.js")] == [HTTPStatus.NOT_FOUND] * 3


def test_the_files_load_nothing_from_elsewhere_and_hold_no_inline_script_or_style() -> None:
    """The policy would refuse it; here it is found without a browser."""
    for name in FILES:
        text = (FOLDER / name).read_text("utf-8")
        assert not re.search(r"""(?:src|href|from|import|url|fetch)\s*[=(]?\s*["'(]?(?:https?:|//|/)\w""", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=\"", text), name


def test_the_files_are_small() -> None:
    texts = {name: (FOLDER / name).read_text("utf-8") for name in FILES}
    assert {name: len(text.splitlines()) for name, text in texts.items() if text.count("\n") > LONGEST_FILE} == {}
    assert sum(len(text.encode()) for text in texts.values()) < MOST_BYTES


def test_the_document_preloads_every_module() -> None:
    """Otherwise a browser finds modules one level at a time."""
    index = (FOLDER / "index.html").read_text("utf-8")
    named = set(re.findall(r'(?:href|src)="([^"]+\.js)"', index))
    assert named == {name for name in FILES if name.endswith(".js")}


def test_every_reason_and_rule_has_words_of_its_own() -> None:
    """What the page has no words for is shown as the label, which only those who know the code understand."""
    text = (FOLDER / "words.js").read_text("utf-8")
    named = set(re.findall(r"^  (\w+): \"", text, re.MULTILINE))
    assert {reason.label for reason in Reason} <= named
    assert {rule.name for rule in (*catalog.RULES, catalog.NODE_FIT)} <= named
