"""README's pictures are those of the page as it is: the text in each picture is what the view shows now."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from grafana.generate.page import (
    PENDING,
    SCHEMES,
    TOPOLOGY,
    View,
    path_of,
    serving,
    shown,
    steady,
    text_in,
    with_text,
)
from tests.page.browser import window

README: Final = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
MOST_BYTES: Final = 300_000
EACH: Final = pytest.mark.parametrize("view", [PENDING, TOPOLOGY], ids=lambda view: view.name)


@EACH
def test_the_readme_shows_it_in_light_and_in_dark(view: View) -> None:
    for scheme in SCHEMES:
        path = path_of(view, scheme)
        assert f"grafana/pictures/{path.name}" in README
        assert len(path.read_bytes()) < MOST_BYTES


@EACH
async def test_it_shows_what_the_page_shows_now(driver: str, view: View) -> None:
    async with window(driver) as browser, serving(view) as url:
        now = await shown(browser, url, view)
    for scheme in SCHEMES:
        assert text_in(path_of(view, scheme).read_bytes()) == now, "run `python -m grafana.generate page`"


def test_a_text_is_found_again_in_a_picture() -> None:
    picture = path_of(PENDING, "light").read_bytes()
    assert text_in(with_text(picture, "façade")) in {"façade", text_in(picture)}
    assert text_in(picture)


def test_ages_are_left_out_of_the_text() -> None:
    assert steady("pending for 2 min,\n for 5 h 12 min") == "pending for a while, for a while"
