"""deploy/README.md as text: its sections, and the commands in them."""

from __future__ import annotations

import re

from extender.wire.api_calls import API_CALLS
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
