"""The rotation of the webhook's own certificates, step by step: at no moment is a certificate shown that is not trusted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from cryptography import x509

from extender.certificates.authority import SERVER, Authority
from extender.certificates.rotation import (
    BUNDLE,
    CERTIFICATE,
    KEY,
    CertificateError,
    Certificates,
    ServingPair,
    certificates_in,
    is_verified,
    next_step,
    read_certificates,
)

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIME = timedelta(days=90)
NAMES = ("webhook.ours.svc", "webhook.ours")


def step(
    known: Certificates, now: datetime, trusted: bytes = b"", names: tuple[str, ...] = NAMES
) -> tuple[str, Certificates]:
    """The next step and what is kept; the empty text where nothing is to be done."""
    found = next_step(known, now, names, LIFETIME, trusted)
    return found or ("", known)


def made(at: datetime = BEGIN) -> Certificates:
    """The first certificates."""
    what, found = step(Certificates(), at)
    assert what == "made"
    return found


def is_trusted(pair: ServingPair | None, bundle: bytes) -> bool:
    """Whether a client with this bundle accepts the certificate."""
    assert pair is not None
    for authority in certificates_in(bundle):
        if authority.subject == pair.certificate.issuer:
            pair.certificate.verify_directly_issued_by(authority)
            return True
    return False


def test_the_first_certificate_is_for_the_names_and_signed_by_the_bundle() -> None:
    found = made()
    assert found.serving is not None
    assert found.serving.is_for(NAMES)
    assert is_trusted(found.serving, found.bundle)
    assert found.serving.end - BEGIN == LIFETIME
    assert step(found, BEGIN) == ("", found)


def test_the_key_of_the_authority_is_kept_nowhere() -> None:
    data = made().data()
    assert set(data) == {BUNDLE, CERTIFICATE, KEY}
    assert data[KEY].count(b"PRIVATE KEY") == 2
    assert b"PRIVATE KEY" not in data[BUNDLE] + data[CERTIFICATE]


def test_at_two_thirds_of_its_life_another_one_is_prepared_and_the_old_one_goes_on() -> None:
    old = made()
    assert step(old, BEGIN + LIFETIME * 2 / 3 - timedelta(minutes=1))[0] == ""
    what, found = step(old, BEGIN + LIFETIME * 2 / 3)
    assert (what, found.serving) == ("prepared", old.serving)
    assert found.authorities[: len(old.authorities)] == old.authorities
    assert is_trusted(found.waiting, found.bundle)
    assert not is_trusted(found.waiting, old.bundle)


def test_the_waiting_one_is_served_only_once_its_authority_is_trusted() -> None:
    old = made()
    now = BEGIN + LIFETIME * 2 / 3
    _, prepared = step(old, now)
    for trusted in (b"", old.bundle, b"no certificate"):
        assert step(prepared, now, trusted) == ("", prepared)
    what, found = step(prepared, now, prepared.bundle)
    assert (what, found.serving, found.waiting) == ("switched", prepared.waiting, None)
    assert found.bundle == prepared.bundle, "replicas that still serve the old one are trusted"


def test_the_old_authority_goes_when_it_has_expired() -> None:
    now = BEGIN + LIFETIME * 2 / 3
    _, prepared = step(made(), now)
    _, switched = step(prepared, now, prepared.bundle)
    assert step(switched, BEGIN + LIFETIME)[0] == ""
    what, found = step(switched, BEGIN + LIFETIME + timedelta(seconds=1))
    assert (what, len(found.authorities)) == ("pruned", 1)
    assert is_trusted(found.serving, found.bundle)


def test_an_expired_certificate_is_replaced_at_once_by_the_waiting_one_if_there_is_one() -> None:
    late = BEGIN + LIFETIME + timedelta(days=1)
    assert step(made(), late)[0] == "made"
    _, prepared = step(made(), BEGIN + LIFETIME * 2 / 3)
    what, found = step(prepared, late)
    assert (what, found.serving) == ("switched", prepared.waiting)


def test_other_names_need_another_certificate() -> None:
    what, found = step(made(), BEGIN, names=("elsewhere.svc",))
    assert what == "made"
    assert found.serving is not None
    assert found.serving.is_for(["elsewhere.svc"])
    assert len(found.authorities) == 2, "other replicas still show the old one"


SPOILED: dict[str, dict[str, bytes]] = {
    "no key": {KEY: b""},
    "another key": {KEY: Authority.make("x", BEGIN, 5).pair.key_pem},
    "no certificate": {CERTIFICATE: b"-----BEGIN CERTIFICATE-----\nMII"},
    "no bundle": {BUNDLE: b""},
    "another bundle": {BUNDLE: Authority.make("x", BEGIN, 90).pair.certificate_pem},
}


@pytest.mark.parametrize("how", SPOILED)
def test_what_cannot_be_used_is_made_again(how: str) -> None:
    known = read_certificates(made().data() | SPOILED[how])
    what, found = step(known, BEGIN)
    assert what == "made"
    assert is_trusted(found.serving, found.bundle)


def test_what_is_kept_is_read_back_the_same() -> None:
    _, prepared = step(made(), BEGIN + LIFETIME * 2 / 3)
    assert read_certificates(prepared.data()) == prepared
    assert read_certificates({}) == Certificates()


@pytest.mark.parametrize("seed", range(3))
def test_over_years_every_replica_shows_a_certificate_that_every_api_server_trusts(seed: int) -> None:
    """Replicas and API servers learn of a change with delays; the bundle counts as trusted once the slowest knows it."""
    rng, now = Random(seed), BEGIN
    kept = made()
    replicas, trusting = [kept.serving] * 3, [kept.bundle] * 3
    known_everywhere, steps = kept.bundle, 0
    while now < BEGIN + timedelta(days=700):
        what, kept = step(kept, now, known_everywhere)
        steps += bool(what)
        for number in range(3):  # each learns of the newest state now, or not yet
            if rng.random() < 0.3:
                trusting[number] = kept.bundle
            if rng.random() < 0.3:
                replicas[number] = kept.serving
        if len(set(trusting)) == 1:
            known_everywhere = trusting[0]
        for shown in replicas:
            assert shown is not None
            assert not shown.problem(now)
            assert all(is_trusted(shown, bundle) for bundle in trusting)
        now += timedelta(days=rng.uniform(0, 2))
    assert steps > 3 * 700 / 60 - 3
    assert len(kept.authorities) <= 2


def test_a_pair_names_what_is_wrong_with_it() -> None:
    pair = Authority.make("x", BEGIN, 5).issue("a", BEGIN, 5, SERVER, ["a"])
    with pytest.raises(CertificateError, match="no certificate in PEM form"):
        ServingPair.load(b"", pair.key_pem)
    with pytest.raises(CertificateError, match="no private key in PEM form"):
        ServingPair.load(pair.certificate_pem, b"")
    found = ServingPair.load(pair.certificate_pem, pair.key_pem)
    assert found.problem(BEGIN + timedelta(days=6)) == "expired on 2026-01-06T00:00:00Z"
    assert found.problem(BEGIN - timedelta(days=1)) == "not valid before 2025-12-31T23:55:00Z"
    assert "PRIVATE" not in repr(found)
    assert isinstance(found.certificate, x509.Certificate)


def test_a_certificate_is_verified_by_any_authority_of_the_bundle_that_signed_it() -> None:
    ours, other = (Authority.make(name, BEGIN, 1) for name in ("ours", "other"))
    leaf = ours.issue("webhook", BEGIN, 1, SERVER).certificate_pem
    ours_pem, other_pem = ours.pair.certificate_pem, other.pair.certificate_pem
    assert is_verified(leaf, other_pem + ours_pem)
    assert not is_verified(leaf, other_pem)
    assert not is_verified(leaf, b"no PEM")
    assert not is_verified(b"no PEM", ours_pem)
