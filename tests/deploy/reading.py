"""deploy/README.md and the pages of deploy/docs as text: their sections, and the commands in them."""

from __future__ import annotations

import re

from extender.wire.api_calls import API_CALLS
from tests.deploy.building import DEPLOY

PAGES = {path: path.read_text("utf-8") for path in (DEPLOY / "README.md", *sorted((DEPLOY / "docs").glob("*.md")))}


def section(title: str) -> str:
    """The text below a heading of any page, with the sections in it. AssertionError unless one page has the heading."""
    found = [
        re.split(rf"^#{{1,{len(head)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
        for text in PAGES.values()
        for head, rest in re.findall(rf"^(#+) {re.escape(title)}\n(.*)", text, re.MULTILINE | re.DOTALL)
    ]
    assert len(found) == 1, f"{title}: {len(found)} sections"
    return found[0]


def blocks(title: str) -> list[str]:
    """The indented blocks of a section, as a shell reads them."""
    return indented(section(title))


def indented(text: str) -> list[str]:
    """The indented blocks of a text, as a shell reads them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)  # output, YAML and diagrams
    found = re.findall(r"(?:^    .*\n)+", text, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


FOREIGN = {
    "Certificate",
    "Issuer",
    "PodMonitor",
    "PrometheusRule",
    "ServiceMonitor",
}  # of operators, whose schemas are theirs
POLICY_RESOURCES = (
    *("secrets", "endpointslices", "mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    *("podschedulingpolicies", "clusterpodschedulingpolicies", "groupplacements"),
)


def declared_calls(resources: tuple[str, ...] = ()) -> set[tuple[str, str, str]]:
    return {
        (each.group, f"{each.resource}/{each.subresource}".rstrip("/"), each.verb)
        for each in API_CALLS
        if not resources or each.resource in resources
    }


def trust(folder: str, client: str) -> list[str]:
    """The flags for the files with which the scheduler asks."""
    return [f"--ca-file={folder}/ca.crt", f"--cert-file={folder}/{client}.crt", f"--key-file={folder}/{client}.key"]
