"""What an API server lacks, by its version and its resources."""

from __future__ import annotations

import pytest

from extender.settings.configuration import Settings
from extender.wire.api_server import ApiServer, decode_resources, decode_version, minor_of, missing
from tests.doctor.facts import settings

ALL = frozenset({"validatingadmissionpolicies", "mutatingadmissionpolicies"})


def lacking(server: ApiServer, used: Settings | None = None) -> list[str]:
    return [row.feature for row in missing(server, used or Settings())]


def test_the_newest_lacks_nothing() -> None:
    assert lacking(ApiServer("v1.36.2", 36, ALL)) == []


@pytest.mark.parametrize(
    ("minor", "resources", "features"),
    [
        pytest.param(31, ALL, [], id="label keys of affinity are on"),
        pytest.param(30, ALL, ["affinity-label-keys"], id="label keys of affinity are dropped"),
        pytest.param(29, frozenset({"x"}), ["affinity-label-keys", "validating-admission-policy"], id="the oldest"),
        pytest.param(
            28,
            frozenset({"x"}),
            ["supported-version", "affinity-label-keys", "validating-admission-policy"],
            id="older than what was tried",
        ),
        pytest.param(32, frozenset({"x"}), ["validating-admission-policy"], id="switched off by --runtime-config"),
        pytest.param(32, None, [], id="unknown resources are not missing"),
    ],
)
def test_what_an_older_one_lacks(minor: int, resources: frozenset[str] | None, features: list[str]) -> None:
    assert lacking(ApiServer(f"v1.{minor}.0", minor, resources)) == features


def test_streaming_lists_are_missing_only_where_the_settings_want_them() -> None:
    server = ApiServer("v1.33.1", 33, ALL, has_streaming_lists=False)
    assert lacking(server) == ["watch-list"]
    assert lacking(server, settings(kube={"watch": {"watchList": False}})) == []


def test_the_version_is_the_emulated_one_where_there_is_one() -> None:
    assert decode_version(b'{"gitVersion": "v1.36.2", "minor": "36", "emulationMinor": "33"}') == ("v1.36.2", 33)
    assert decode_version(b'{"gitVersion": "v1.30.5-gke.1014001", "minor": "30+"}') == ("v1.30.5-gke.1014001", 30)
    assert decode_version(b'{"gitVersion": "v0.0.0-master"}') == ("v0.0.0-master", None)
    assert decode_version(b"{}") == ("unnamed", None)


def test_the_minor_version_of_a_tag() -> None:
    assert [minor_of(tag) for tag in ("v1.33.4", "1.29", "v1.30.5-eks-1", "latest", "v2.1.0")] == [
        33,
        29,
        30,
        None,
        None,
    ]


def test_the_resources_are_named() -> None:
    assert decode_resources(b'{"kind": "APIResourceList", "resources": [{"name": "a", "verbs": []}]}') == {"a"}
