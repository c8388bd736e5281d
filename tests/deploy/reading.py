"""deploy/README.md as text: its sections, and the commands in them."""

from __future__ import annotations

import re

from tests.deploy.building import DEPLOY

README = (DEPLOY / "README.md").read_text("utf-8")


def section(title: str) -> str:
    """The text below a heading."""
    _, _, rest = README.partition(f"\n## {title}\n")
    assert rest, title
    return rest.partition("\n## ")[0]


def blocks(title: str) -> list[str]:
    """The indented blocks of a section, as a shell reads them."""
    found = re.findall(r"(?:^    .*\n)+", section(title), re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]
