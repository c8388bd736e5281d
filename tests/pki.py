"""Certificates for tests: an authority, a server's files in a folder, and clients as kube-scheduler's TLSConfig makes them."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import msgspec
from cryptography import x509

from extender.certificates.authority import CLIENT, SERVER, Authority, Pair
from extender.settings.connections import Clients, Tls

NOW = datetime.now(UTC)
LONG_AGO = NOW - timedelta(days=1000)
SCHEDULER = "system:kube-scheduler"
LOOPBACK = ("localhost", "127.0.0.1")


class Pki:
    """What stands in a folder. `tls` are the settings that point there; the files are written by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.make("first", NOW, 10)
        self.tls = Tls(cert_file=str(folder / "server.crt"), key_file=str(folder / "server.key"))
        self.put_server(self.authority.issue("extender", NOW, 5, SERVER, LOOPBACK))

    def put_server(self, pair: Pair) -> None:
        """The server's certificate and key from now on."""
        Path(self.tls.cert_file).write_bytes(pair.certificate_pem)
        Path(self.tls.key_file).write_bytes(pair.key_pem)
        Path(self.tls.key_file).chmod(0o600)

    def put_clients_of(self, *authorities: Authority) -> None:
        """Whose clients are answered from now on."""
        path = self.folder / "clients.crt"
        path.write_bytes(b"".join(authority.pair.certificate_pem for authority in authorities))
        self.tls = msgspec.structs.replace(self.tls, client_ca_file=str(path))

    def verifying(self, *names: str) -> Tls:
        """The settings under which only clients of the authority with one of these names are answered, as the scheduler."""
        return self.giving(Clients(scheduler=names))

    def giving(self, clients: Clients) -> Tls:
        """The settings under which clients of the authority have these roles."""
        self.put_clients_of(self.authority)
        return msgspec.structs.replace(self.tls, clients=clients)

    def client(self, pair: Pair | None = None, *trusted: Authority, insecure: bool = False) -> ssl.SSLContext:
        """A client that trusts the authority (or those given) and shows a certificate if it has one."""
        context = ssl.create_default_context(cadata=self._trusted(trusted))
        if insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair:
            certificate, key = self.folder / "client.crt", self.folder / "client.key"
            certificate.write_bytes(pair.certificate_pem)
            key.write_bytes(pair.key_pem)
            context.load_cert_chain(certificate, key)
        return context

    def scheduler(self) -> Pair:
        return self.authority.issue(SCHEDULER, NOW, 5, CLIENT)

    def _trusted(self, authorities: tuple[Authority, ...]) -> str:
        return "".join(found.pair.certificate_pem.decode() for found in authorities or (self.authority,))


def serving(folder: Path, pair: Pair) -> ssl.SSLContext:
    """What a server shows."""
    path = folder / "serving.pem"
    path.write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def new_connections(context: ssl.SSLContext) -> aiohttp.ClientSession:
    """A session that makes a connection, and so a handshake, for every request."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context, force_close=True))


async def shown(url: str, context: ssl.SSLContext) -> str:
    """The subject of the certificate that a new connection is shown."""
    _, host, port = url.replace("//", "").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
    handshake: ssl.SSLObject = writer.get_extra_info("ssl_object")
    found = handshake.getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert found
    return x509.load_der_x509_certificate(found).subject.rfc4514_string()
