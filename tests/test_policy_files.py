"""The policies in config/policies are ones to copy: accepted without a warning, and explained field by field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from extender.wire.policies.policies_v1 import read_policy
from tests.deploy.policies.examples import TO_COPY, to_copy
from tests.tools.crds.policies import crds
from tests.verbs.admit.reviewing import review, verb

README = Path(__file__).resolve().parents[1] / "config" / "policies" / "README.md"


def rows() -> set[str]:
    """What stands in the first column of the tables of the README."""
    cells = re.findall(r"^\| (`.+?) \|", README.read_text("utf-8"), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("name", TO_COPY)
def test_a_policy_is_accepted_without_a_warning_beside_all_others(name: str) -> None:
    found = verb(*(read_policy(to_copy(each)) for each in TO_COPY))
    response = found.decide(review(to_copy(name)))["response"]
    assert (response["allowed"], response.get("warnings")) == (True, None)


def test_the_readme_explains_every_file_and_every_field() -> None:
    fields = {
        field
        for crd in crds()
        for version in crd["spec"]["versions"]
        for field in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    }
    block = crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["release"]
    fields |= {f"spec.release.{name}" for name in block["properties"]}
    assert len(TO_COPY) == 7
    assert fields | TO_COPY.keys() <= rows()
    assert {name for name in rows() if name.endswith(".yaml")} == set(TO_COPY)
