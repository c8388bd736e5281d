"""The documents: each link leads to a file and a heading of it, and the metrics and settings that they name exist."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from deploy.site.navigation import PAGES
from extender.cli.sources import add_output
from extender.settings.configuration import Settings
from extender.telemetry.catalogue import METRICS
from tests.test_config_files import fields_of

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "config").rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        *(ROOT / "extender").rglob("*.md"),
        *(ROOT / "grafana").rglob("*.md"),
    )
)
# Files, the domain of annotations, and resources of quotas.
OTHERS = re.compile(r"\.(crt|dev|json|key|md|svg|yaml)$|^limits\.(cpu|memory)$")
VALUES = {"policies.failurePolicy", "policies.timeoutSeconds"}  # of the chart, in a section that settings have too
EACH = pytest.mark.parametrize("document", DOCUMENTS, ids=str)
# How a document speaks of a state of the product that no user has had.
EARLIER_STATES = re.compile(
    r"\b[Ee]arlier (versions?|releases?) of (the|this) (extender|product)|\bIn (earlier|older|previous) versions\b"
    r"|\b([Ff]ormerly|[Pp]reviously|(has|have|was|were) (been )?renamed|not been released)\b|Apply `[^`]+`( and `[^`]+`)? again"
)
# In a changelog also the comparison itself: "Before, ...", "9 s in place of 40", "(7 before)".
COMPARISONS = re.compile(
    EARLIER_STATES.pattern + r"|\bBefore, |\d before\)|(instead|in place) of \d|\b(no longer|any more)\b"
)
LONGEST_PAGE = 1500  # words: what is longer belongs into the document of the capability


def anchors(path: Path) -> set[str]:
    """The names by which links reach a document's headings, as GitHub makes them, and the names that it gives itself."""
    text = path.read_text("utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    own = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    return own | {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


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


def test_the_navigation_of_the_site_names_every_document_once() -> None:
    assert sorted(PAGES) == sorted(map(str, DOCUMENTS)), "deploy/site/navigation.py"


def test_links_are_found() -> None:
    """The test above would pass a document whose links it cannot read."""
    assert len(re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text("utf-8"))) > 15


@EACH
def test_metrics_that_a_document_names_exist(document: Path) -> None:
    known = {name for metric in METRICS for name in (metric.name, *metric.samples)}
    assert set(re.findall(r"`(extender_[a-z_]+)`", (ROOT / document).read_text("utf-8"))) - known == set()


@EACH
def test_settings_that_a_document_names_exist(document: Path) -> None:
    sections = "|".join(field.encode_name for field in msgspec.structs.fields(Settings))
    text = (ROOT / document).read_text("utf-8")
    named = re.findall(rf"(?<![\w/.])(?:{sections})(?:\.[a-zA-Z]+)+", text)
    assert {name for name in named if not OTHERS.search(name)} - fields_of(Settings) - VALUES == set()


@EACH
def test_a_document_lists_the_forms_of_output_as_the_commands_do(document: Path) -> None:
    parser = argparse.ArgumentParser()
    add_output(parser)
    (forms,) = (action.choices for action in parser._actions if "-o" in action.option_strings)
    for listed in re.findall(r"-o (\w+(?:\|\w+)+)", (ROOT / document).read_text("utf-8")):
        assert listed.split("|") == list(forms or ()), listed


def test_names_are_found() -> None:
    """The two tests above would pass documents whose names they cannot read."""
    text = "".join((ROOT / document).read_text("utf-8") for document in DOCUMENTS)
    assert "`extender_pods_over_limit`" in text
    assert re.search(r"`server\.tls\.clients`", text)


@EACH
def test_documents_speak_of_no_state_before_the_first_release(document: Path) -> None:
    assert [match[0] for match in EARLIER_STATES.finditer((ROOT / document).read_text("utf-8"))] == []


def test_the_changelog_says_on_one_page_what_this_version_has() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    headings = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert headings[0].splitlines()[0].startswith(f"[{project['version']}]"), "the topmost heading is the next version"
    assert len(headings[0].split()) <= LONGEST_PAGE
    assert COMPARISONS.findall(headings[-1]) == [], "the first release has nothing to be compared with"


@pytest.mark.parametrize(
    "line",
    [
        "In earlier versions the Service had a selector.",
        "Apply `deploy/policies` again for the schema.",
        "It has not been released yet.",
        "A pod keeps its room. Before, another pod could get it.",
        "A taint takes 46 ms instead of 82.",
        "Certificates with less than 14 days left (7 before) are named.",
        "The command no longer reads it.",
    ],
)
def test_comparisons_with_earlier_states_are_found(line: str) -> None:
    """The tests above would pass documents whose comparisons they cannot read."""
    assert COMPARISONS.search(line)
