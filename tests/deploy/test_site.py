"""The site (`make docs`): every page is there, and no link leads nowhere. Building it needs the extra `docs`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.site.__main__ import build
from deploy.site.conf import MERMAID
from deploy.site.navigation import FIRST, PAGES
from tests.deploy.building import ROOT
from tests.programs import library

_SHOWN = re.compile(r'<(?:script|img|source|link rel="stylesheet")[^>]*? (?:src|srcset|href)="([^"]+)"')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, built once. A link that leads nowhere fails the build."""
    library("sphinx", ".venv/docs-ready")
    out = tmp_path_factory.mktemp("site")
    assert build(out) == 0
    return out


def page_of(site: Path, name: str) -> Path:
    return site / Path(name).with_suffix(".html")


def test_the_site_has_every_page_and_a_search(site: Path) -> None:
    assert [name for name in PAGES if not page_of(site, name).exists()] == []
    assert (site / "index.html").read_bytes() == page_of(site, FIRST).read_bytes()
    index = (site / "searchindex.js").read_text("utf-8")
    assert [name for name in PAGES if f'"{name}"' not in index] == []


def test_what_a_page_shows_or_runs_is_in_the_site_and_comes_from_no_other_host(site: Path) -> None:
    shown = {
        (page, target.partition("?")[0])
        for page in site.rglob("*.html")
        for target in _SHOWN.findall(page.read_text("utf-8"))
    }
    assert len(shown) > len(PAGES)
    assert {target for page, target in shown if not (page.parent / target).exists()} == set()


@pytest.mark.parametrize("name", [name for name in PAGES if "```mermaid" in (ROOT / name).read_text("utf-8")])
def test_a_diagram_is_drawn_by_a_script_of_the_site(site: Path, name: str) -> None:
    text = page_of(site, name).read_text("utf-8")
    assert text.count('<pre class="mermaid">') == (ROOT / name).read_text("utf-8").count("```mermaid")
    assert f"_static/{MERMAID.name}" in text
