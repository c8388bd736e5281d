"""The configuration of Sphinx. It runs in the folder of the repository, and takes the Markdown files as they are."""

from __future__ import annotations

import html
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from deploy.release.image import version as release_version
from deploy.site.navigation import FIRST, NAVIGATION, PAGES

MERMAID = Path(sys.prefix) / "mermaid.min.js"
_PICTURES = Path("grafana") / "pictures"

project = "placement-extender"
project_copyright = "the authors of placement-extender"
release = release_version()
extensions = ["myst_parser"]
root_doc = FIRST.removesuffix(".md")
include_patterns = list(PAGES)
exclude_patterns = [".*", "build", "dist", "results", "site"]
myst_heading_anchors = 6  # as GitHub names them
myst_fence_as_directive = ["mermaid"]
html_theme = "furo"
html_title = f"placement-extender {release}"
html_copy_source = False
html_show_sphinx = False


def add_navigation(_app: Any, page: str, source: list[str]) -> None:
    """The first page has the navigation, which the file itself need not show."""
    if page == root_doc:
        for title, pages in NAVIGATION.items():
            names = "\n".join(f"/{name.removesuffix('.md')}" for name in pages)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{names}\n```\n"


def draw_diagrams(app: Any, _page: str, _template: str, context: dict[str, Any], _doctree: object) -> None:
    """Only pages with a diagram load what draws it."""
    if MERMAID.exists() and 'class="mermaid"' in context.get("body", ""):
        app.add_js_file(MERMAID.name, loading_method="defer")


def copy_files(app: Any, error: Exception | None) -> None:
    """What HTML in a page refers to, the first page under the name that a server looks for, and what draws diagrams."""
    if error is None:
        out = Path(app.outdir)
        shutil.copytree(_PICTURES, out / _PICTURES, dirs_exist_ok=True)
        shutil.copy(out / f"{root_doc}.html", out / "index.html")
        if MERMAID.exists():
            shutil.copy(MERMAID, out / "_static" / MERMAID.name)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    nodes: Any = import_module("docutils.nodes")  # there only where the site is built
    docutils: Any = import_module("sphinx.util.docutils")

    def run(directive: Any) -> list[Any]:
        """A fence of mermaid, which the browser draws."""
        text = html.escape("\n".join(directive.content), quote=False)
        return [nodes.raw("", f'<pre class="mermaid">\n{text}\n</pre>', format="html")]

    app.add_directive("mermaid", type("Mermaid", (docutils.SphinxDirective,), {"has_content": True, "run": run}))
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", draw_diagrams)
    app.connect("build-finished", copy_files)
