"""The schemas of the CRDs without an API server: they are structural, bounded, and hold every field of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.policies.crds import FILE, all_crds, as_text, policy_crds
from extender.model.policies import GROUP, VERSION
from extender.settings.configuration import API_VERSION as SETTINGS_VERSION
from extender.wire.policies.policy_schema import SPEC
from tests.deploy.policies.examples import API_VERSION, BAD, FULL, STATUS, Json, namespaced_full, policy

BY_KIND = {crd["spec"]["names"]["kind"]: crd for crd in policy_crds()}
EACH = pytest.mark.parametrize("crd", policy_crds(), ids=lambda crd: crd["spec"]["names"]["kind"])


def schema_of(crd: Json) -> Json:
    (version,) = crd["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found


def parts(found: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema inside a schema, with its path."""
    yield path, found
    for name, part in found.get("properties", {}).items():
        yield from parts(part, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in found:
            yield from parts(found[name], f"{path}.{name}")


def kept(found: Json, value: Any) -> Any:
    """A value as the API server stores it: without the fields that the schema does not have."""
    if isinstance(value, list):
        return [kept(found["items"], each) for each in value]
    if isinstance(value, dict) and "properties" in found:
        fields = found["properties"]
        return {name: kept(fields[name], each) for name, each in value.items() if name in fields}
    return value


def test_the_file_is_what_the_schemas_are_written_as() -> None:
    assert FILE.read_text("utf-8") == as_text(), "run python -m deploy.policies"
    assert list(yaml.safe_load_all(FILE.read_text("utf-8"))) == all_crds()


def test_the_group_is_that_of_the_configuration() -> None:
    assert f"{GROUP}/{VERSION}" == SETTINGS_VERSION == API_VERSION


@EACH
def test_the_schema_is_structural_and_has_no_unbounded_part(crd: Json) -> None:
    """https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema ."""
    for path, part in parts(schema_of(crd)):
        if part.get("x-kubernetes-int-or-string"):  # it has no type, and a rule that bounds it
            continue
        assert part.get("type") in {"object", "array", "string", "integer", "boolean"}, path
        assert not {"oneOf", "anyOf", "allOf", "not", "$ref", "uniqueItems"} & set(part), path
        if part["type"] == "array":
            assert part["maxItems"] > 0, path
        if part["type"] == "object" and "properties" not in part and path != ".metadata":
            assert part["maxProperties"] > 0, path
        if part["type"] == "string" and path not in {".apiVersion", ".kind"}:
            assert {"maxLength", "enum", "format"} & set(part), path


@pytest.mark.parametrize("found", [FULL, namespaced_full()], ids=lambda found: str(found["kind"]))
def test_no_documented_field_is_pruned(found: Json) -> None:
    schema = schema_of(BY_KIND[found["kind"]])
    whole = {**found, "status": STATUS}
    assert kept(schema, {**whole, "metadata": {}}) == {**whole, "metadata": {}}


def test_every_field_name_of_the_schema_is_in_the_example_that_is_tried() -> None:
    """So that the tests of acceptance leave no field out."""
    known = {name for _, part in parts(schema_of(policy_crds()[0])) for name in part.get("properties", ())}
    tried = set(_field_names({**FULL, "status": STATUS}))
    # Excluded by schedulerNames, by schedulingGates, and by other kinds of a group and of its size.
    assert known - tried == {"schedulerName", "nodeName", "owner", "count"}


def test_each_field_of_a_policy_has_an_example_that_is_refused() -> None:
    refused = [re.split(r"[.\[]", where)[1] for _, where in BAD.values() if where.startswith("spec.")]
    assert {field.name for field in SPEC.fields} - set(refused) == set()


def _field_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _field_names(each)


def test_the_two_kinds_differ_in_the_namespace_selector_only() -> None:
    cluster, namespaced = (schema_of(crd)["properties"] for crd in policy_crds())
    without = {name: part for name, part in cluster["spec"]["properties"].items() if name != "namespaceSelector"}
    assert namespaced["spec"]["properties"] == without
    assert namespaced["status"] == cluster["status"]


@EACH
def test_the_status_is_a_subresource_and_the_names_are_those_of_the_documentation(crd: Json) -> None:
    (version,) = crd["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    assert crd["spec"]["names"]["categories"] == ["placement"]
    assert crd["spec"]["names"]["shortNames"] == [{"Cluster": "cpodpol", "Namespaced": "podpol"}[crd["spec"]["scope"]]]
    assert crd["metadata"]["name"] == f"{crd['spec']['names']['plural']}.{GROUP}"
    for column in version["additionalPrinterColumns"][:-1]:
        _, section, field, *_ = column["jsonPath"].replace("[", ".").split(".")
        assert field in schema_of(crd)["properties"][section]["properties"]


@EACH
def test_every_rule_names_a_field_of_the_object_that_it_stands_at(crd: Json) -> None:
    seen = 0
    for path, part in parts(schema_of(crd)):
        for each in part.get("x-kubernetes-validations", ()):
            seen += 1
            if "fieldPath" in each:
                assert each["fieldPath"].removeprefix(".") in part["properties"], path
    assert seen > 0


def test_every_bad_example_names_a_field_of_the_schema() -> None:
    known = {path for path, _ in parts(schema_of(policy_crds()[0]))}
    for case, (spec, field) in BAD.items():
        path = "." + re.sub(r"\[\d+]", ".items", field)
        maps = (".spec.podSelector.matchLabels.", ".spec.nodeSelector.", ".spec.release.domains.items.quota.resources.")
        is_map_key = path.startswith(maps)
        assert (path.rpartition(".")[0] if is_map_key else path) in known, case
        assert policy(**spec)["spec"], case
