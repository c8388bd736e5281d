"""What `extender config generate` prints, and parts of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.cli.main import main
from tests.builders import Json
from tests.cli.serving import configuration

TLS = {"certFile": "/etc/tls/tls.crt", "keyFile": "/etc/tls/tls.key"}


FILES = {"ca": "ca.crt", "cert": "c.crt", "key": "c.key"}


TRUSTED = {f"{name}File": f"/etc/kubernetes/{file}" for name, file in FILES.items()}


TRUST = [part for name, file in FILES.items() for part in (f"--{name}-file", f"/etc/kubernetes/{file}")]


def generated(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["config", "generate", *arguments]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def rejected(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said instead of a document."""
    assert main(["config", "generate", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def stanza(document: Any) -> Any:
    (found,) = document["extenders"]
    return found


def kubeconfig(document: Any) -> Any:
    return document.get("clientConnection", {}).get("kubeconfig")


def plugins(document: Any) -> Any:
    """The arguments of each plugin."""
    configs = (config for profile in document.get("profiles", ()) for config in profile.get("pluginConfig", ()))
    return {config["name"]: config["args"] for config in configs}


def strategy(document: Any) -> Any:
    return plugins(document)["NodeResourcesFit"]["scoringStrategy"]["type"], "DefaultPreemption" in plugins(document)


def score_plugins(document: Any) -> Any:
    """The entries that are enabled at multiPoint, and the entries that are disabled at score."""
    profile, *others = document["profiles"]
    assert all(other["plugins"] == profile["plugins"] for other in others)
    plugins = profile["plugins"]
    return plugins["multiPoint"]["enabled"], plugins.get("score", {}).get("disabled", [])


def ignorable(document: Any) -> Any:
    return stanza(document)["ignorable"]


def percentage(document: Any) -> Any:
    return document.get("percentageOfNodesToScore")


def names_of_profile(document: Any) -> Any:
    return document["profiles"], document["leaderElection"]["resourceName"]


def profiles(document: Any) -> Any:
    """The name and the sample of each profile."""
    return [(each["schedulerName"], each.get("percentageOfNodesToScore")) for each in document.get("profiles", ())]


def plugins_of_profiles(document: Any) -> Any:
    """The disabled plugins of each profile, and whether both profiles have the same arguments of plugins."""
    first, second = document["profiles"]
    disabled = [[plugin["name"] for plugin in each["plugins"]["multiPoint"]["disabled"]] for each in (first, second)]
    return disabled, first.get("pluginConfig") == second.get("pluginConfig")


def weights(document: Any) -> Any:
    profile, *others = document["profiles"]
    assert all(other["plugins"] == profile["plugins"] for other in others)
    weight_of = {each["name"]: each["weight"] for each in profile["plugins"]["multiPoint"]["enabled"]}
    return plugins(document), *map(weight_of.get, ("TaintToleration", "NodeAffinity", "ImageLocality"))


def audited(**reach: str) -> Json:
    return {"enabled": True, "mode": "Audit", "reach": {"maxNamespaces": {"limit": 5, **reach}}}


def several(folder: Path, *, count: int = 3, layout: str = "service", **sections: Any) -> tuple[str, ...]:
    config = configuration(folder, **({"schedulers": "many", "server": {"tls": TLS}} | sections))
    return ("--config", config, "--layout", layout, "--schedulers", str(count), *TRUST)
