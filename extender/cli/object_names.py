"""Names of the objects of a cluster, for completions. A cluster that does not answer has no names."""

from __future__ import annotations

import argparse

import orjson

from extender.cli.files import access_to, kubectl_file, own_namespace
from extender.cli.sources import cluster_of
from extender.compose.process import run_on_loop
from extender.kube.credentials import Access, contexts_of
from extender.kube.errors import KubeError
from extender.kube.listing import read_pages
from extender.kube.session import SessionOptions, open_session
from extender.kube.timing import SystemClock


def contexts(given: argparse.Namespace) -> list[str]:
    """The contexts of the kubeconfig."""
    access = _access(given)
    try:
        return [] if access.host else sorted(contexts_of(access)[1])
    except KubeError:
        return []


def names_at(path: str, given: argparse.Namespace, seconds: float) -> list[str]:
    """The names of the first page at a path, with "{namespace}" replaced by the given or the current namespace."""
    access = _access(given)

    async def read() -> list[str]:
        async with open_session(access, SystemClock(), SessionOptions(seconds, seconds)) as session:
            async for page in read_pages(session.reads, place):
                return sorted(orjson.loads(item)["metadata"]["name"] for item in page)  # the first page is enough
        return []

    try:
        current, namespaces = ("", {"": own_namespace()}) if access.host else contexts_of(access)
        place = path.format(namespace=given.namespace or namespaces[current])
        return run_on_loop(read())
    except KubeError:
        return []


def _access(given: argparse.Namespace) -> Access:
    given.kubeconfig = kubectl_file(given.kubeconfig)
    return access_to(cluster_of(given))
