"""The component deploy/certificates: what the command needs and no more, for the Secrets that the pods mount."""

from __future__ import annotations

import pytest

from extender.certificates.renewal import AUTHORITY, SERVING
from extender.cli.certificate_secrets import PART_OF_CLIENT
from extender.cli.main import make_parser
from tests.deploy.building import DEPLOY, DEPLOYED, load_all, named, of_kind, overlay, overlay_with, templates, validate

PARTS = {AUTHORITY, SERVING, *PART_OF_CLIENT.values()}
SECRETS = {f"placement-extender-{part}" for part in PARTS}


@pytest.mark.parametrize("name", [name for name in DEPLOYED if name != "service-cert-manager"])
def test_it_makes_every_secret_that_the_pods_wait_for(name: str) -> None:
    documents = overlay_with("certificates", name)
    for document in documents:
        validate(document)
    applied = {one["metadata"]["name"] for one in of_kind(documents, "Secret")}
    volumes = [volume for template in templates(documents) for volume in template["spec"]["volumes"]]
    mounted = [volume["secret"] for volume in volumes if "secret" in volume]
    assert {secret["secretName"] for secret in mounted} <= applied
    assert all("items" in secret for secret in mounted), "else pods start with Secrets that are empty"
    (image,) = {
        container["image"]
        for template in templates(documents)
        for container in template["spec"]["containers"]
        if container["name"] == "extender"
    }
    (job,) = of_kind(documents, "Job")
    assert job["spec"]["template"]["spec"]["containers"][0]["image"] == image


def test_its_account_writes_these_secrets_by_name_and_creates_none() -> None:
    documents = [one for file in sorted((DEPLOY / "certificates").glob("*.yaml")) for one in load_all(file)]
    secrets, services = named(documents, "Role", "placement-extender-certificates")["rules"]
    assert (set(secrets["resourceNames"]), secrets["verbs"]) == (SECRETS, ["get", "patch"])
    assert (services["resources"], services["resourceNames"]) == (["services"], ["placement-extender"])
    made = of_kind(documents, "Secret")
    assert {one["metadata"]["name"] for one in made} == SECRETS
    assert {one["type"] for one in made} == {"Opaque"}, "the API server adds a token to another type, and a type stays"
    assert not any("data" in one for one in made), "or applying again would remove the certificates"


def test_the_token_of_the_second_scheduler_has_an_end_and_is_requested_for_one_account() -> None:
    documents = overlay_with("certificates", "second-scheduler", "token")
    secret = named(documents, "Secret", "placement-extender-token")
    assert secret["type"] == "Opaque", "else the control plane fills it with a token without an end"
    assert "annotations" not in secret["metadata"]
    requests, secrets = named(documents, "Role", "placement-extender-token")["rules"]
    assert (requests["resources"], requests["resourceNames"]) == (["serviceaccounts/token"], ["placement-extender"])
    assert (secrets["resourceNames"], secrets["verbs"]) == (["placement-extender-token"], ["get", "patch"])
    (job,), (cron,) = of_kind(documents, "Job"), of_kind(documents, "CronJob")
    for spec in (job["spec"], cron["spec"]["jobTemplate"]["spec"]):
        assert spec["template"]["spec"]["containers"][0]["args"][-1] == "--token"


def test_both_jobs_run_the_same_command_which_exists() -> None:
    job, cron = load_all(DEPLOY / "certificates" / "jobs.yaml")
    assert cron["spec"]["jobTemplate"]["spec"]["template"] == job["spec"]["template"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found = make_parser("certs").parse_args([word.replace("$(POD_NAMESPACE)", "ours") for word in container["args"]])
    assert (found.secrets, found.days) == ("ours", 90.0)
    labels = job["spec"]["template"]["metadata"]["labels"]
    for name in ("second-scheduler", "service"):
        (budget,) = of_kind(overlay(name), "PodDisruptionBudget")
        assert not budget["spec"]["selector"]["matchLabels"].items() <= labels.items(), "not one of the extender's pods"
