"""The names in a client's certificate, in the forms in which OpenSSL gives them."""

import pytest

from extender.server.request_checks import PeerCertificate, names_in

DIRECTORY = ("DirName", ((("commonName", "system:kube-scheduler"),),))
FORMS = {
    "each form that is one text": (
        (("DNS", "a.example"), ("URI", "spiffe://b"), ("email", "c@d"), ("IP Address", "::1")),
        ["a.example", "spiffe://b", "c@d", "::1"],
    ),
    "forms that OpenSSL does not read": ((("othername", "<unsupported>"), ("Registered ID", "1.2.3")), []),
    "a directory name, which is no text": ((DIRECTORY,), []),
    "one name many times": ((("DNS", "a"),) * 5000, ["a"]),
    "entries of another length": ((("DNS",), ("DNS", "a", "b"), ()), []),
}


@pytest.mark.parametrize(("entries", "names"), FORMS.values(), ids=FORMS)
def test_only_plain_forms_name_a_client(entries: tuple[tuple[object, ...], ...], names: list[str]) -> None:
    certificate: PeerCertificate = {"subject": (), "subjectAltName": entries}
    assert list(names_in(certificate)) == names


def test_common_names_come_first_and_each_name_once() -> None:
    certificate: PeerCertificate = {
        "subject": ((("organizationName", "team"),), (("commonName", "one"), ("commonName", "two"))),
        "subjectAltName": (("DNS", "two"), ("DNS", "three")),
    }
    assert list(names_in(certificate)) == ["one", "two", "three"]
