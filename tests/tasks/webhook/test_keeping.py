"""Own certificates and webhook configurations as the leader keeps them: made, rotated, repaired; standbys follow."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from extender.certificates.authority import SERVER, Authority
from extender.certificates.rotation import ServingPair
from extender.simulator.apiserver.api_errors import ApiError
from extender.simulator.apiserver.fault_points import Call, Faults
from extender.simulator.apiserver.kinds import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, ServedKind, Target
from extender.tasks.webhook.keeper import SETTLE_SECONDS, FileCertificates
from extender.wire.api_calls import SECRET
from tests.fakes import FakeClock
from tests.tasks.webhook.scene import BEGIN, CONFIGURATION, LIFETIME, NAME, Replica, Scene
from tests.tasks.webhook.scene import scene as opened

BOTH = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


class Refusing(Faults):
    """The account may not call these kinds, or may not make one call on them."""

    def __init__(self, *kinds: ServedKind, method: str = "") -> None:
        self._kinds = kinds
        self._method = method

    async def before_answer(self, call: Call) -> None:
        """403, as without a role."""
        if call.target is not None and call.target.kind in self._kinds and call.method.startswith(self._method):
            raise ApiError(403, "Forbidden", "forbidden by no role")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """A cluster to which deploy/policies was applied."""
    async with opened() as found:
        yield found


@pytest.fixture
async def leader(scene: Scene) -> Replica:
    found = scene.replica()
    await found.keeper.step()
    return found


async def test_the_first_round_makes_certificates_and_says_the_api_server(scene: Scene, leader: Replica) -> None:
    assert scene.is_trusted(leader.serving)
    assert leader.configurations.repairs == {"mutating": 1, "validating": 1}
    assert leader.configurations.correct == {"mutating": 1.0, "validating": 1.0}
    assert set(scene.stored(SECRETS)["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    assert scene.stored(SECRETS)["type"] == "Opaque"


async def test_a_round_without_a_change_writes_nothing(scene: Scene, leader: Replica) -> None:
    version = scene.api.store.version
    for _ in range(3):
        await leader.keeper.step()
    assert scene.api.store.version == version
    assert len({pair.certificate_pem for pair in leader.served}) == 1


async def test_a_standby_serves_what_the_leader_has_made(scene: Scene, leader: Replica) -> None:
    standby = scene.replica()
    await standby.poll()
    assert standby.serving == leader.serving
    assert standby.configurations.correct == {"mutating": 0.0, "validating": 0.0}


async def test_a_rotation_is_never_ahead_of_what_the_api_servers_trust(scene: Scene, leader: Replica) -> None:
    standby, first = scene.replica(), leader.serving
    scene.now = BEGIN + LIFETIME * 2 / 3
    await leader.keeper.step()
    assert leader.certificates.steps["prepared"] == 1
    assert leader.serving == first
    assert scene.bundle(MUTATING_WEBHOOKS).count(b"BEGIN") == 2
    await standby.poll()
    assert standby.serving == first
    await leader.keeper.step()
    assert leader.serving == first, "the API servers may not have heard of the bundle yet"
    await scene.clock.sleep(SETTLE_SECONDS)
    await leader.keeper.step()
    assert leader.serving != first
    assert leader.certificates.steps["switched"] == 1
    assert scene.is_trusted(leader.serving)
    assert scene.is_trusted(standby.serving), "a standby that has not looked yet"
    await standby.poll()
    assert standby.serving == leader.serving


async def test_while_a_configuration_cannot_be_written_the_old_certificate_is_served(
    scene: Scene, leader: Replica
) -> None:
    first = leader.serving
    scene.api.faults = Refusing(VALIDATING_WEBHOOKS)
    scene.now = BEGIN + LIFETIME * 2 / 3
    for _ in range(3):
        await leader.keeper.step()
        await scene.clock.sleep(SETTLE_SECONDS)
    assert leader.serving == first
    assert leader.configurations.correct == {"mutating": 1.0, "validating": 0.0}


async def test_a_new_leader_goes_on_with_the_rotation_of_the_old_one(scene: Scene, leader: Replica) -> None:
    scene.now = BEGIN + LIFETIME * 2 / 3
    await leader.keeper.step()
    successor = scene.replica()
    await successor.keeper.step()
    await scene.clock.sleep(SETTLE_SECONDS)
    await successor.keeper.step()
    assert successor.certificates.steps == {
        **dict.fromkeys(("made", "prepared", "pruned", "restored", "failed"), 0),
        "switched": 1,
    }
    assert scene.is_trusted(successor.serving)


async def test_two_leaders_do_not_overwrite_each_other(scene: Scene) -> None:
    """At most one of two that are sure to lead writes; the other one reads it in its next round."""
    one, other = scene.replica(), scene.replica()
    secret = await scene.objects.get(SECRET, "ours", NAME)
    await one.keeper.step()
    with pytest.raises(Exception, match="409"):
        await scene.objects.update(SECRET, {**secret, "data": {}})
    await other.keeper.step()
    assert other.serving == one.serving


async def test_after_the_expiry_of_the_old_authority_the_bundle_has_one(scene: Scene, leader: Replica) -> None:
    scene.now = BEGIN + LIFETIME * 2 / 3
    for _ in range(2):
        await leader.keeper.step()
        await scene.clock.sleep(SETTLE_SECONDS)
    await leader.keeper.step()
    scene.now = BEGIN + LIFETIME + timedelta(days=1)
    await leader.keeper.step()
    await leader.keeper.step()
    assert leader.certificates.steps["pruned"] == 1
    assert scene.bundle(MUTATING_WEBHOOKS).count(b"BEGIN") == 1
    assert scene.is_trusted(leader.serving)


@pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.kind)
@pytest.mark.parametrize(
    "change",
    [
        {"failurePolicy": "Fail", "timeoutSeconds": 30},
        {"rules": []},
        {"clientConfig": {"url": "https://elsewhere.example.com", "caBundle": ""}},
        {"matchPolicy": "Exact", "admissionReviewVersions": ["v1beta1"]},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_what_another_client_changed_is_written_back_and_counted(
    scene: Scene, leader: Replica, kind: object, change: dict[str, object]
) -> None:
    which = MUTATING_WEBHOOKS if kind is MUTATING_WEBHOOKS else VALIDATING_WEBHOOKS
    before, repairs = scene.webhook(which), sum(leader.configurations.repairs.values())
    scene.edit(which, **change)
    await leader.keeper.step()
    assert scene.webhook(which) == before
    assert sum(leader.configurations.repairs.values()) == repairs + 1


async def test_objects_that_an_administrator_takes_away_stay_away_for_every_leader(
    scene: Scene, leader: Replica
) -> None:
    """Of kupid's README, Mutating higher-order controllers. Policies are always validated."""
    narrow = {"matchLabels": {"policies": "on"}}
    for kind in BOTH:
        scene.edit(kind, objectSelector=narrow)
    await leader.keeper.step()
    await scene.replica().keeper.step()
    assert scene.webhook(MUTATING_WEBHOOKS)["objectSelector"] == narrow
    assert scene.webhook(VALIDATING_WEBHOOKS)["objectSelector"] == {}
    assert leader.configurations.repairs == {"mutating": 1, "validating": 2}
    scene.edit(MUTATING_WEBHOOKS, namespaceSelector={})
    await leader.keeper.step()
    found = scene.webhook(MUTATING_WEBHOOKS)
    assert (found["objectSelector"], bool(found["namespaceSelector"])) == (narrow, True)


async def test_conditions_that_an_administrator_adds_survive_a_repair(scene: Scene, leader: Replica) -> None:
    conditions = [{"name": "not-ci", "expression": "object.metadata.namespace != 'ci'"}]
    scene.edit(MUTATING_WEBHOOKS, matchConditions=conditions)
    await leader.keeper.step()
    assert leader.configurations.repairs["mutating"] == 1, "that is no difference"
    scene.edit(MUTATING_WEBHOOKS, timeoutSeconds=1)
    await leader.keeper.step()
    found = scene.webhook(MUTATING_WEBHOOKS)
    assert (found["matchConditions"], found["timeoutSeconds"]) == (conditions, 3)


async def test_a_secret_that_was_emptied_is_made_again_and_the_configurations_follow(
    scene: Scene, leader: Replica
) -> None:
    scene.api.operations.change(SECRETS, f"ours/{NAME}", lambda obj: obj.update(data={"tls.crt": "no base64!"}))
    await leader.keeper.step()
    assert leader.certificates.steps["made"] == 2
    assert scene.is_trusted(leader.serving)


async def test_a_secret_that_cannot_be_read_is_a_problem_that_is_logged_once_and_heals(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.api.faults = Refusing(SECRETS)
    replica = scene.replica()
    for _ in range(3):
        await replica.keeper.step()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "the webhook's certificates cannot be read or written"
    ]
    assert not replica.served
    assert scene.bundle(MUTATING_WEBHOOKS) == b"", "no configuration is written without an authority"
    scene.api.faults = Faults()
    await replica.keeper.step()
    assert scene.is_trusted(replica.serving)


async def test_a_deleted_secret_is_created_with_the_certificates_in_use(scene: Scene, leader: Replica) -> None:
    """A rotation that is under way goes on: the waiting pair is kept too, and no API server needs a new bundle."""
    scene.now = BEGIN + LIFETIME * 2 / 3
    await leader.keeper.step()
    before, bundle = scene.stored(SECRETS)["data"], scene.bundle(MUTATING_WEBHOOKS)
    scene.api.operations.delete(Target(SECRETS, "ours", NAME), {})
    await leader.keeper.step()
    assert scene.stored(SECRETS)["data"] == before
    assert scene.stored(SECRETS)["type"] == "Opaque"
    assert scene.bundle(MUTATING_WEBHOOKS) == bundle
    assert (leader.certificates.steps["restored"], leader.certificates.steps["made"]) == (1, 1)


async def test_a_leader_that_knows_no_certificate_creates_the_secret_and_makes_one(scene: Scene) -> None:
    scene.api.operations.delete(Target(SECRETS, "ours", NAME), {})
    replica = scene.replica()
    await replica.keeper.step()
    assert scene.is_trusted(replica.serving)
    assert (replica.certificates.steps["restored"], replica.certificates.steps["made"]) == (1, 1)


@pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.kind)
async def test_a_deleted_configuration_is_created_as_it_was_and_counted(
    scene: Scene, leader: Replica, kind: ServedKind
) -> None:
    before, repairs = scene.stored(kind), sum(leader.configurations.repairs.values())
    scene.api.operations.delete(Target(kind, "", CONFIGURATION), {})
    await leader.keeper.step()
    assert scene.stored(kind)["webhooks"] == before["webhooks"]
    assert sum(leader.configurations.repairs.values()) == repairs + 1
    assert leader.configurations.correct == {"mutating": 1.0, "validating": 1.0}


@pytest.mark.parametrize("kind", BOTH, ids=lambda kind: kind.kind)
async def test_a_deleted_configuration_whose_bundle_another_writes_is_left_to_that_writer(
    scene: Scene, leader: Replica, kind: ServedKind
) -> None:
    scene.api.operations.delete(Target(kind, "", CONFIGURATION), {})
    assert not await leader.configurations.keep(None)
    assert CONFIGURATION not in scene.api.store.table(kind).objects


async def test_without_the_permission_to_create_what_was_deleted_stays_a_problem(scene: Scene, leader: Replica) -> None:
    scene.api.operations.delete(Target(MUTATING_WEBHOOKS, "", CONFIGURATION), {})
    scene.api.operations.delete(Target(SECRETS, "ours", NAME), {})
    scene.api.faults = Refusing(MUTATING_WEBHOOKS, SECRETS, method="POST")
    first = leader.serving
    for _ in range(2):
        await leader.keeper.step()
    assert leader.configurations.correct == {"mutating": 0.0, "validating": 1.0}
    assert leader.serving == first
    assert leader.certificates.problem


# -- files ----------------------------------------------------------------------------------------------------------


def put(folder: Path, name: str) -> ServingPair:
    authority = Authority.make(name, BEGIN, 5)
    pair = authority.issue(name, BEGIN, 5, SERVER, ["a"])
    for file, content in (
        ("tls.crt", pair.certificate_pem),
        ("tls.key", pair.key_pem),
        ("ca.crt", authority.pair.certificate_pem),
    ):
        (folder / file).write_bytes(content)
    return ServingPair.load(pair.certificate_pem, pair.key_pem)


def files(folder: Path, served: list[ServingPair], ca_file: str = "ca.crt") -> FileCertificates:
    """The source of these files; ``served`` gets each certificate once, as `WebhookTls` does with the same one again."""

    def use(pair: ServingPair) -> None:
        if pair not in served:
            served.append(pair)

    certificate, key, authority = (str(folder / each) for each in ("tls.crt", "tls.key", ca_file))
    return FileCertificates(certificate, key, authority if ca_file else "", FakeClock(), use)


def test_files_are_read_when_they_change_and_bad_ones_leave_the_old_in_use(tmp_path: Path) -> None:
    served: list[ServingPair] = []
    source, first = files(tmp_path, served), put(tmp_path, "first")
    source.reload()
    source.reload()
    assert served == [first]
    assert source.bundle == (tmp_path / "ca.crt").read_bytes()
    (tmp_path / "tls.key").write_bytes(b"")
    for _ in range(3):
        source.reload()
    assert (served, source.steps["failed"], source.problem) == ([first], 1, "no private key in PEM form")
    second = put(tmp_path, "second")
    source.reload()
    assert served == [first, second]


def test_without_a_ca_file_the_bundle_is_left_to_another_writer(tmp_path: Path) -> None:
    source = files(tmp_path, [], ca_file="")
    put(tmp_path, "first")
    source.reload()
    assert source.bundle is None


async def test_with_another_writer_of_the_bundle_the_rest_is_kept_and_the_bundle_stays(scene: Scene) -> None:
    injected = base64.b64encode(b"injected").decode()
    replica = scene.replica()
    client = scene.webhook(MUTATING_WEBHOOKS)["clientConfig"]
    scene.edit(MUTATING_WEBHOOKS, clientConfig={**client, "caBundle": injected}, timeoutSeconds=3)
    assert await replica.configurations.keep(None)
    found = scene.webhook(MUTATING_WEBHOOKS)
    assert (found["clientConfig"]["caBundle"], found["timeoutSeconds"]) == (injected, 3)
