"""Reviews that do not come from the API server, and policies that are written to learn of others."""

import asyncio
from typing import Any, Final

import orjson

from extender.simulator.apiserver.kinds import EVENTS, POLICY_KINDS
from extender.tasks.policy_status import ROUND_SECONDS
from tests.attack.attacks import ATTACKS, Target, status_text
from tests.fakes import PATIENCE
from tests.policies import policy_json
from tests.server.raw import whole, wire
from tests.verbs.admit.reviewing import review

_FORGED: Final = "forged"
_OF_PLATFORM: Final = policy_json(
    "of-platform", nodeSelector={"pool": "secret"}, podSelector={"matchLabels": {"app": "db"}}
)
_FOR_OTHERS: Final = policy_json(
    "for-others", namespaceSelector={"matchLabels": {"team": "others"}}, nodeSelector={"disk": "secret"}
)


@ATTACKS.attack("a forged review whose text is to become the status of a policy", quick=False)
async def _(target: Target) -> str:
    kind = _known(target)
    pod = {"kind": "Pod", "metadata": {"name": "made-up", "labels": {"app": "db"}}}
    status, answer = await _reviewed(target, "mutate", {**pod, "spec": {"nodeSelector": {"pool": _FORGED}}})
    if target.tls is not None:
        return status_text(status) if status == 401 else f"failed: {status_text(status)} {answer!r}"
    if _FORGED.encode() not in answer:
        return f"failed: the policy was not applied, so nothing was attacked: {answer!r}"
    await asyncio.sleep(ROUND_SECONDS + 1)  # the leader has written every status since
    written = orjson.dumps([
        *(stored.read() for stored in target.api.store.table(kind).latest()),
        *(stored.read() for stored in target.api.store.table(EVENTS).latest()),
    ])  # fmt: skip
    if b"observedGeneration" not in written:
        return "failed: no status was written, so nothing was attacked"
    return (
        "failed: it is in the status" if _FORGED.encode() in written else f"{status_text(status)}, and no trace of it"
    )


@ATTACKS.attack("a policy that guesses at what is directed for others", quick=False)
async def _(target: Target) -> str:
    _known(target)
    mine = policy_json("mine", "default", nodeSelector={"pool": "guess", "disk": "guess"})
    status, answer = await _reviewed(target, "validate", mine)
    if target.tls is not None:
        return status_text(status) if status == 401 else f"failed: {status_text(status)} {answer!r}"
    return f"failed: {answer!r}" if b"for-others" in answer else f"{status_text(status)}, and no word of it"


def _known(target: Target) -> Any:
    """The kind of the platform's policies, which are there from the first call on."""
    kind = next(each for each in POLICY_KINDS if each.kind == _OF_PLATFORM["kind"] and "placement" in each.group)
    if not target.api.store.table(kind).objects:
        for each in (_OF_PLATFORM, _FOR_OTHERS):
            target.api.operations.create(kind, each)
    return kind


async def _reviewed(target: Target, webhook: str, obj: Any) -> tuple[int, bytes]:
    """What a client without the API server's certificate is answered, once the service knows the policies."""
    body = orjson.dumps(review(obj, namespace="default"))
    async with asyncio.timeout(PATIENCE):
        while True:
            async with wire(target.webhook, target.webhook_tls) as connection:
                await connection.send(whole("POST", f"/{webhook}", body))
                status, answer = await connection.status(), connection.body
            if status != 503 and (webhook == "validate" or target.tls or b"secret" in answer):
                return status, answer
            await asyncio.sleep(0.1)
