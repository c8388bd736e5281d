"""Pods that were placed under a policy."""

from __future__ import annotations

from typing import Any

from extender.model.constraints.labels import HOSTNAME
from extender.model.objects import Pod
from extender.model.policies import Policy
from tests.builders import REQUIRED, Json
from tests.contenders import contender, contender_json
from tests.policies import policy

WEB = {"matchLabels": {"app": "web"}}
DB = {"matchLabels": {"app": "db"}}


def repelling(name: str = "lonely", key: str = HOSTNAME, **spec: Any) -> Policy:
    """A policy for pods of app `db`: no pod of app `web` beside them."""
    term = {"topologyKey": key, "labelSelector": WEB}
    return policy(name, affinity={"podAntiAffinity": {REQUIRED: [term]}}, podSelector=DB, **spec)


def db(on: str = "na", **fields: Any) -> Pod:
    """A pod of app `db` that was never injected."""
    return contender(f"db-{on}", on=on, **{"app": "db"} | fields)


def web() -> Json:
    return contender_json("asking", app="web")
