"""The files in config/ say what the code does, and can be used as they are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from extender.settings.configuration import Mode, Settings, default_settings, parse_settings
from extender.verbs.prioritize import has_scores
from tests.deploy.building import load

CONFIG = Path(__file__).resolve().parents[1] / "config"
MAPPINGS = {"policies.templates"}
SCHEDULER_FILES = {"offload": CONFIG / "kube-scheduler-offload.yaml", "augment": CONFIG / "kube-scheduler-augment.yaml"}


def fields_of(kind: type[msgspec.Struct], prefix: str = "") -> set[str]:
    """Every path of a settings struct, in the words of the file."""
    found: set[str] = set()
    for field in msgspec.structs.fields(kind):
        path = f"{prefix}{field.encode_name}"
        found.add(path)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= fields_of(field.type, f"{path}.")
    return found


def paths_of(document: dict[str, Any], prefix: str = "") -> set[str]:
    """Every path that a document mentions; the keys of a setting that is a mapping are values, not settings."""
    found: set[str] = set()
    for name, value in document.items():
        found.add(f"{prefix}{name}")
        if isinstance(value, dict) and f"{prefix}{name}" not in MAPPINGS:
            found |= paths_of(value, f"{prefix}{name}.")
    return found


def test_the_configuration_file_shows_the_defaults() -> None:
    assert parse_settings(load(CONFIG / "extender.yaml")) == Settings()


def test_the_configuration_file_shows_every_setting() -> None:
    assert paths_of(load(CONFIG / "extender.yaml")) == fields_of(Settings)


def test_every_setting_in_the_configuration_file_has_its_reason() -> None:
    lines = (CONFIG / "extender.yaml").read_text("utf-8").splitlines()
    settings = [line for line in lines if ": " in line and not line.startswith(("#", "apiVersion", "kind", "mode"))]
    bare = [line for line in settings if " # " not in line]
    assert bare == ["    filter: /filter", "    prioritize: /prioritize", "    preempt: /preempt"]


@pytest.mark.parametrize("mode", SCHEDULER_FILES)
def test_the_schedulers_file_asks_where_the_extender_answers(mode: Mode) -> None:
    server = Settings().server
    (stanza,) = load(SCHEDULER_FILES[mode])["extenders"]
    assert stanza["urlPrefix"] == f"http://{server.bind_address}"
    verbs = {"filter": "filterVerb", "prioritize": "prioritizeVerb", "preempt": "preemptVerb"}
    requested = {verb: f"/{stanza[field]}" for verb, field in verbs.items() if field in stanza}
    assert requested == {verb: getattr(server.paths, verb) for verb in requested}
    assert verbs.keys() - requested == (set() if has_scores(default_settings(mode)) else {"prioritize"})


@pytest.mark.parametrize("mode", SCHEDULER_FILES)
def test_the_schedulers_file_waits_longer_than_the_extender_takes(mode: str) -> None:
    (stanza,) = load(SCHEDULER_FILES[mode])["extenders"]
    assert float(stanza["httpTimeout"].removesuffix("s")) > Settings().server.request_timeout


def test_only_offload_mode_takes_the_plugins_from_the_scheduler_and_then_never_does_without_us() -> None:
    offload, augment = load(SCHEDULER_FILES["offload"]), load(SCHEDULER_FILES["augment"])
    for profile in offload["profiles"]:
        disabled = {plugin["name"] for plugin in profile["plugins"]["multiPoint"]["disabled"]}
        assert disabled == {"InterPodAffinity", "PodTopologySpread"}
    assert "profiles" not in augment
    assert (offload["extenders"][0]["ignorable"], augment["extenders"][0]["ignorable"]) == (False, True)


@pytest.mark.parametrize("mode", SCHEDULER_FILES)
def test_the_schedulers_file_has_no_field_that_kube_scheduler_does_not_know(mode: str) -> None:
    known = {
        *("urlPrefix", "filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb", "weight", "enableHTTPS", "tlsConfig"),
        *("httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"),
    }
    document = load(SCHEDULER_FILES[mode])
    assert (document["apiVersion"], document["kind"]) == (
        "kubescheduler.config.k8s.io/v1",
        "KubeSchedulerConfiguration",
    )
    assert {field for stanza in document["extenders"] for field in stanza} <= known
