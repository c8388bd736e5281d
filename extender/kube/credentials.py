"""Address and credentials of the API server: an explicit host, the pod's service account, or a kubeconfig.

Only this module uses the Kubernetes client library. It needs the library only for a kubeconfig that is spread over
several files, or whose user has a credential plugin or an auth provider. `import kubernetes_asyncio` takes 56 MB and
0.2 s of processor time for 859 modules, one for a class of each API object. Otherwise an address, a header and a TLS context are enough for aiohttp's
session. The library's own calls take over a millisecond to decode a pod into models, and set no time limit.

A token is read again before a request, at most once a minute: a service account's token lives an hour, and the kubelet
replaces it (KEP-1205). If the refresh fails, the old token stays in use: the API server rejects it when it has expired.
https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import yaml

from extender.kube.errors import BadAccess
from extender.kube.timing import Clock
from extender.kube.yaml_bounds import BoundedLoader

_LOG = logging.getLogger(__name__)

ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
REFRESH_SECONDS: Final = 60.0
_PATHS: Final = ":"  # between the paths of several kubeconfigs
_MOST_VALUES: Final = 100_000  # of a kubeconfig; a context with its cluster and user has about twenty

# Reads a token: the value of the header Authorization.
ReadToken = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Access:
    """Which API server, and which account. With ``host`` no kubeconfig is read."""

    # The URL of the API server.
    host: str = ""
    # ``token`` and ``ca.crt`` of a pod's service account; without it ``host`` is used without credentials, for servers
    # on loopback.
    account_folder: str = ""
    kubeconfig: str = ""
    # Empty means the current context of the kubeconfig.
    context: str = ""


class Credentials:
    """The address of the API server and the credentials of each request.

    ``server_name``: the name in the server's certificate, where it differs from the address.
    """

    def __init__(
        self,
        host: str,
        tls: ssl.SSLContext | None = None,
        authorization: str = "",
        *,
        server_name: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self.host = host.rstrip("/")
        self.tls = tls
        self.server_name = server_name
        self.proxy = proxy
        self._authorization = _checked(authorization)
        self._read: ReadToken | None = None
        self._next = 0.0
        self._lock = asyncio.Lock()

    def refresh_by(self, read: ReadToken, clock: Clock) -> None:
        """From now on the token is read again when it is due."""
        self._read, self._clock, self._next = read, clock, clock.now() + REFRESH_SECONDS

    async def authorization(self) -> str:
        """The header Authorization of the next request; empty if there is none. Only one refresh runs at a time."""
        if self._read is not None and self._clock.now() >= self._next:
            async with self._lock:
                if self._clock.now() >= self._next:  # otherwise another request has just refreshed it
                    self._next = self._clock.now() + REFRESH_SECONDS
                    try:
                        self._authorization = _checked(await self._read()) or self._authorization
                    except Exception as error:  # noqa: BLE001 - plugins and files fail in any way; the old token may still work
                        _LOG.warning(
                            "credentials not refreshed, the old ones stay in use", extra={"problem": str(error)}
                        )
        return self._authorization


def _checked(authorization: str) -> str:
    """Removes a newline at the end of a token file, which would make the header invalid.

    A newline within the token could add a header, so it is refused.
    """
    value = authorization.strip()
    if not value.isprintable():
        raise BadAccess("credentials: the token contains a line break or another control character")
    return value


async def load_credentials(access: Access, clock: Clock) -> Credentials:
    """Raises ``BadAccess`` with the missing part."""
    if access.host and not access.account_folder:
        return Credentials(access.host)
    source = "the service account" if access.host else f"kubeconfig {access.kubeconfig}"
    try:
        if access.host:
            return await _of_account(access, clock)
        if _PATHS not in access.kubeconfig:
            file = _KubeconfigFile.read(access)
            if not file.user.keys() & {"exec", "auth-provider"}:
                return await file.credentials(clock)
            file.require_plugin()
        for name in filter(Path.is_file, map(Path, access.kubeconfig.split(_PATHS))):
            _document(name)  # the library has no bound
        return await _by_the_library(access, clock)
    except Exception as error:
        # A malformed file raises whatever its line happens to cause: YAML errors, asserts, key errors.
        raise BadAccess(f"{source}: {str(error) or type(error).__name__}") from error


async def _of_account(access: Access, clock: Clock) -> Credentials:
    token, authority = Path(access.account_folder, "token"), Path(access.account_folder, "ca.crt")
    credentials = Credentials(access.host, _tls(str(authority)), await _read_token(token))
    credentials.refresh_by(lambda: _read_token(token), clock)
    return credentials


async def _read_token(path: Path) -> str:
    # A kilobyte of a memory-backed file once a minute: a thread would cost more than the read.
    token = path.read_text(encoding="utf-8").strip()  # noqa: ASYNC240 (a line of a local file)
    if not token:
        raise BadAccess(f"{path} is empty")
    return f"Bearer {token}"


def _tls(authority: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority)
    if certificate:
        context.load_cert_chain(certificate, key)
    return context


def _unverified(context: ssl.SSLContext) -> None:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE


def contexts_of(access: Access) -> tuple[str, Mapping[str, str]]:
    """The context that an access by kubeconfig uses, and the namespace of each context.

    Raises ``BadAccess`` without a context.

    Of several files the first one that sets a value wins, as in kubectl. A file that does not exist is skipped.
    """
    namespaces: dict[str, str] = {}
    current = access.context
    for path in filter(Path.is_file, (Path(name).expanduser() for name in access.kubeconfig.split(_PATHS) if name)):
        try:
            document = _document(path)
            current = current or document.get("current-context") or ""
            for context in document.get("contexts") or ():
                namespaces.setdefault(context["name"], (context.get("context") or {}).get("namespace") or "default")
        except (yaml.YAMLError, OSError, LookupError, AttributeError, TypeError, ValueError, RecursionError) as error:
            raise BadAccess(f"kubeconfig {path}: {error}") from None
    if not current:
        raise BadAccess(f"kubeconfig {access.kubeconfig}: it does not exist, or sets no current context")
    if current not in namespaces:
        raise BadAccess(f"kubeconfig {access.kubeconfig}: no context is named {current}")
    return current, namespaces


def _document(path: Path) -> dict[str, Any]:
    """A kubeconfig. Its values are bounded, because a text of aliases can stand for more than the memory holds.

    Raises what a malformed file causes.
    """
    documents = BoundedLoader(path.read_bytes(), _MOST_VALUES).documents()
    document: Any = (documents[0] if documents else None) or {}
    if not isinstance(document.get("current-context") or "", str):
        raise TypeError("current-context: expected text")
    return dict(document)


class _KubeconfigFile:
    """The cluster and the user of one context. Paths are relative to the file."""

    def __init__(self, path: Path, document: Mapping[str, Any], context: str) -> None:
        self._folder = path.parent
        self._document = document
        current = self._named("context", context or document["current-context"])
        self._cluster = self._named("cluster", current["cluster"])
        self.user = self._named("user", current["user"]) if current.get("user") else {}

    @classmethod
    def read(cls, access: Access) -> Self:
        """Reads the only file."""
        path = Path(access.kubeconfig).expanduser()
        return cls(path, _document(path), access.context)

    def _named(self, kind: str, name: str) -> Mapping[str, Any]:
        for entry in self._document[f"{kind}s"]:
            if entry["name"] == name:
                section: Mapping[str, Any] = entry[kind] or {}
                return section
        raise BadAccess(f"no {kind} is named {name}")

    def require_plugin(self) -> None:
        """Raises ``BadAccess`` if the user's credential plugin is not installed.

        The plugin's own error would not name it.
        """
        plugin = self.user.get("exec") or {}
        command = str(plugin.get("command", ""))
        # A path with a separator is relative to the file, as for kubectl.
        if command and not shutil.which(str(self._folder / command) if os.sep in command else command):
            hint = f": {plugin['installHint']}" if plugin.get("installHint") else ""
            raise BadAccess(f"the credential plugin {command} is not installed, or not in PATH{hint}")

    async def credentials(self, clock: Clock) -> Credentials:
        """The credentials of a user without a plugin."""
        user, cluster, host = self.user, self._cluster, self._cluster["server"]
        token_file = self._folder / user["tokenFile"] if "tokenFile" in user and not user.get("token") else None
        credentials = Credentials(
            host,
            self._tls() if host.startswith("https") else None,
            await _read_token(token_file) if token_file else self._authorization(),
            server_name=cluster.get("tls-server-name"),
            proxy=cluster.get("proxy-url"),
        )
        if token_file:
            credentials.refresh_by(lambda: _read_token(token_file), clock)
        return credentials

    def _authorization(self) -> str:
        if self.user.get("token"):
            return f"Bearer {self.user['token']}"
        if "username" in self.user and "password" in self.user:
            return f"Basic {b64encode('{username}:{password}'.format_map(self.user).encode()).decode()}"
        return ""

    def _tls(self) -> ssl.SSLContext:
        with TemporaryDirectory() as folder:  # the standard library reads certificates from files only
            authority = self._file(self._cluster, "certificate-authority", folder)
            certificate = self._file(self.user, "client-certificate", folder)
            context = _tls(authority, certificate, self._file(self.user, "client-key", folder))
        if self._cluster.get("insecure-skip-tls-verify"):
            _unverified(context)
        return context

    def _file(self, section: Mapping[str, Any], name: str, folder: str) -> str | None:
        """The path of a file that a section names, or of a temporary file with the content in the section."""
        data = section.get(f"{name}-data")
        if data:
            path = Path(folder, name)
            path.write_bytes(b64decode(data))
            return str(path)
        return str(self._folder / section[name]) if section.get(name) else None


async def _by_the_library(access: Access, clock: Clock) -> Credentials:
    """For credential plugins, auth providers and several files."""
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_kube_config

    read = Configuration()
    loader = await load_kube_config(
        config_file=access.kubeconfig,
        context=access.context or None,
        client_configuration=read,
        persist_config=False,  # a service does not rewrite its operator's kubeconfig
    )
    host = read.host or ""
    context = _tls(read.ssl_ca_cert, read.cert_file, read.key_file) if host.startswith("https") else None
    if context is not None and not read.verify_ssl:
        _unverified(context)
    credentials = Credentials(
        host,
        context,
        read.api_key.get("BearerToken", ""),
        server_name=read.tls_server_name,
        proxy=read.proxy,
    )

    async def again() -> str:
        await loader.load_and_set(read)
        return str(read.api_key.get("BearerToken", ""))

    # A plugin whose credentials have no expiry would be started each minute; with an expiry the loader waits for it.
    if getattr(loader, "provider", None) is not None or hasattr(loader, "exec_plugin_expiry"):
        credentials.refresh_by(again, clock)
    return credentials
