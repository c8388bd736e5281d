"""The file with all CRDs, so that one `kubectl apply -f` installs each kind that the extender reads or writes."""

from pathlib import Path
from typing import Final

from tests.deploy.building import DEPLOY
from tests.tools.crds import group_placements, policies, topology_domains
from tests.tools.crds.policies import dumped
from tests.tools.crds.schema import Schema

FILE: Final[Path] = DEPLOY / "policies" / "crds.yaml"
_HEAD: Final = "# All kinds of the extender. Written by `python -m tests.tools.crds`.\n#\n"


def all_crds() -> list[Schema]:
    """In the order of the file."""
    return [*policies.crds(), group_placements.crd(), topology_domains.crd()]


def as_text() -> str:
    """The whole file."""
    parts = (
        (policies.HEAD, policies.crds()),
        (group_placements.HEAD, [group_placements.crd()]),
        (topology_domains.HEAD, [topology_domains.crd()]),
    )
    return _HEAD + "".join(head + dumped(documents) for head, documents in parts)
