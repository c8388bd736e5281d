"""The links of the documents: each leads to a file that exists, and to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "config").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "grafana").rglob("*.md"),
    )
)
EACH = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


def anchors(path: Path) -> set[str]:
    """The names by which links reach a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@EACH
def test_every_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    folder = (ROOT / document).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / document).read_text("utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = folder / path if path else ROOT / document
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_links_are_found() -> None:
    """The test above would pass a document whose links it cannot read."""
    assert len(re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text("utf-8"))) > 15
