"""The endpoints for probes, Prometheus and administrators: livez, readyz, metrics, configz, version, log level.

The answers have the form of Kubernetes components:
https://kubernetes.io/docs/reference/using-api/health-checks/
"""

import logging
import platform
from collections.abc import Mapping
from http import HTTPStatus
from typing import get_args

import orjson
from aiohttp import web

from extender.server.collaborators import COLLABORATORS
from extender.server.request_checks import read_body
from extender.settings.configuration import settings_document
from extender.telemetry.logs import Level, current_level, set_level
from extender.telemetry.metrics import EXPOSITION_TYPE

CONFIGZ_NAME = "placement.extender.dev"
_LONGEST_WORD = 64  # bytes; the longest level has seven
_LOG = logging.getLogger(__name__)


async def livez(_: web.Request) -> web.Response:
    """The process answers. It does not depend on the cluster, because a restart would not bring back an API server."""
    return web.Response(text="ok")


async def readyz(request: web.Request) -> web.Response:
    """Whether requests are answered, or would be if this replica led. `?verbose` lists the checks; a failure always does."""
    checks, remarks = request.app[COLLABORATORS].readiness.pod_checks()
    return readiness_answer(checks, request, remarks)


def readiness_answer(
    checks: Mapping[str, str], request: web.Request, remarks: Mapping[str, str] | None = None
) -> web.Response:
    """The answer for these checks. An empty problem is a pass; ``remarks`` has a remark about some of them."""
    failed = [name for name, problem in checks.items() if problem]
    if not failed and "verbose" not in request.query:
        return web.Response(text="ok")
    remark_of = {name: f" ({remark})" for name, remark in (remarks or {}).items()}
    lines = [
        f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok{remark_of.get(name, '')}"
        for name, problem in checks.items()
    ]
    lines.append("readyz check failed" if failed else "readyz check passed")
    return web.Response(text="\n".join(lines) + "\n", status=_status(ready=not failed))


async def readyz_check(request: web.Request) -> web.Response:
    """One readiness check by its name. The check of leadership passes at the leader only."""
    readiness = request.app[COLLABORATORS].readiness
    problem = {**readiness.pod_checks()[0], **readiness.checks()}.get(request.match_info["check"])
    if problem is None:
        raise web.HTTPNotFound
    return web.Response(text=problem or "ok", status=_status(ready=not problem))


async def metrics(request: web.Request) -> web.Response:
    """The page that Prometheus reads. Rendering takes some milliseconds."""
    app = request.app[COLLABORATORS]
    await app.turns.take()
    return web.Response(body=app.metrics.render(), headers={"Content-Type": EXPOSITION_TYPE})


async def configz(request: web.Request) -> web.Response:
    """The settings in force, in the form of the configuration file. They hold no secrets."""
    app = request.app[COLLABORATORS]
    await app.turns.take()
    document = settings_document(app.settings)
    return _json(orjson.dumps({CONFIGZ_NAME: document}))


async def version(request: web.Request) -> web.Response:
    """What is running."""
    about = {
        "version": request.app[COLLABORATORS].version,
        "pythonVersion": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    return _json(orjson.dumps(about))


async def log_level(_: web.Request) -> web.Response:
    """The level in force: debug, info, warning or error."""
    return web.Response(text=current_level())


async def change_log_level(request: web.Request) -> web.Response:
    """`curl -X PUT --data debug .../debug/loglevel`: holds until the next start. Answers with the level."""
    # Compared as bytes. The client's charset is ignored, because decoding by some charsets takes minutes.
    app = request.app[COLLABORATORS]
    held = app.bodies.acquire(request)
    try:
        word = (await read_body(request, _LONGEST_WORD, "", app.bodies, held)).strip()
    finally:
        app.bodies.release(held)
    for level in get_args(Level):
        if word == level.encode():
            _LOG.warning("log level changed", extra={"from": current_level(), "to": level})
            set_level(level)
            return web.Response(text=level)
    raise web.HTTPBadRequest(reason=f"expected one of {', '.join(get_args(Level))}")


def _status(*, ready: bool) -> int:
    """Probes read the status, administrators the text."""
    return HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")
