"""Address and credentials of the API server: an explicit host, the pod's service account, or a kubeconfig.

Gives the client's Configuration with a hook that keeps its token fresh; opens no connection. Called by ``session``.

The client calls that hook before each request, and this one reads at most once a minute: a service account's token lives
an hour and is replaced by the kubelet (KEP-1205), a kubeconfig's ``tokenFile`` or exec plugin gives tokens that run out
as well, and for those the client itself sets no hook. A failed refresh keeps the old token: the apiserver will say so
when it is really too old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from extender.kube.client_library import KUBE_CONFIG_DEFAULT_LOCATION, Configuration, KubeConfigLoader, config
from extender.kube.connection import Access
from extender.kube.errors import BadAccess, translated
from extender.kube.timing import Clock

_LOG = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 60.0

Refresh = Callable[[Configuration], Awaitable[None]]


async def load_configuration(access: Access, clock: Clock) -> Configuration:
    """The client's configuration with a refreshing hook; raises ``BadAccess`` with what is missing."""
    configuration = Configuration()
    with translated("credentials"):
        if access.host:
            configuration.host = access.host.rstrip("/")
        elif access.in_cluster:
            _load_account(access, configuration, clock)
        else:
            await _load_kubeconfig(access, configuration, clock)
    return configuration


def _load_account(access: Access, configuration: Configuration, clock: Clock) -> None:
    token, authority = Path(access.account_folder, "token"), Path(access.account_folder, "ca.crt")
    config.load_incluster_config(  # type: ignore[no-untyped-call]  # has none
        client_configuration=configuration,
        token_filename=str(token),
        cert_filename=str(authority),
        try_refresh_token=False,  # the library's own uses the wall clock and stops when that jumps back
    )
    _strip_token(configuration)

    async def refresh(target: Configuration) -> None:
        # A kilobyte of a memory-backed file once a minute: a thread would cost more than the read.
        fresh = token.read_text(encoding="utf-8").strip()  # noqa: ASYNC240 (a line of a local file)
        if fresh:
            target.api_key["BearerToken"] = f"Bearer {fresh}"

    configuration.refresh_api_key_hook = _Guarded(refresh, clock)


async def _load_kubeconfig(access: Access, configuration: Configuration, clock: Clock) -> None:
    path = access.kubeconfig or KUBE_CONFIG_DEFAULT_LOCATION
    try:
        loader: KubeConfigLoader = await config.load_kube_config(
            config_file=path,
            context=access.context or None,
            client_configuration=configuration,
            persist_config=False,  # a service does not rewrite its operator's kubeconfig
        )
    except Exception as error:
        # The loader meets a malformed file with whatever its line happened to raise: YAML errors, asserts, key errors.
        raise BadAccess(f"kubeconfig {path}: {str(error) or type(error).__name__}") from error
    _strip_token(configuration)
    if _may_expire(loader):

        async def refresh(target: Configuration) -> None:
            await loader.load_and_set(target)
            _strip_token(target)

        configuration.refresh_api_key_hook = _Guarded(refresh, clock)


def _may_expire(loader: KubeConfigLoader) -> bool:
    """Whether loading the user again can give another token, without starting a plugin that names no expiry."""
    user = loader._user  # noqa: SLF001 - the library's own refresh_token() reads it likewise
    if user is None:
        return False
    if "exec" in user:
        return hasattr(loader, "exec_plugin_expiry")  # then the loader itself runs the plugin five minutes before it
    return getattr(loader, "provider", None) is not None or "tokenFile" in user


def _strip_token(configuration: Configuration) -> None:
    """A token file that ends in a newline would be rejected as a header."""
    token = configuration.api_key.get("BearerToken")
    if token:
        configuration.api_key["BearerToken"] = token.strip()


class _Guarded:
    """A refresh hook that runs one refresh at a time, at most once a minute, and survives its failure."""

    def __init__(self, refresh: Refresh, clock: Clock) -> None:
        self._refresh = refresh
        self._clock = clock
        self._next = clock.now() + REFRESH_SECONDS
        self._lock = asyncio.Lock()

    async def __call__(self, configuration: Configuration) -> None:
        """Called by the client before each request."""
        if self._clock.now() < self._next:
            return
        async with self._lock:
            if self._clock.now() < self._next:
                return  # another request has just done it
            self._next = self._clock.now() + REFRESH_SECONDS
            try:
                await self._refresh(configuration)
            except Exception as error:  # noqa: BLE001 - plugins and files fail in any way; the old token may still do
                _LOG.warning("credentials not refreshed, the old ones stay in use: %s", error)
