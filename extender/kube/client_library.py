"""The parts of the Kubernetes client library that are used, imported without its models: the only import of the library.

`import kubernetes_asyncio` also imports a class for each object and group of the API: 860 modules, 37 MB and a third of a
second of processor time. Nothing here uses them, so the packages that would import them are entered into `sys.modules`
without running their code; the modules inside are then found as usual. Where the library is laid out in another way than
that of the pinned major, or was imported before, the ordinary import is used.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final

_LIBRARY: Final = "kubernetes_asyncio"
_PACKAGES: Final = (_LIBRARY, f"{_LIBRARY}.client", f"{_LIBRARY}.client.models")


def _enter(name: str) -> ModuleType:
    """Enters a package whose code has not run. Raises ImportError where there is none of that name."""
    found = find_spec(name)
    if found is None or found.submodule_search_locations is None:
        raise ImportError(f"no package {name}")
    spec = ModuleSpec(name, None, origin=found.origin, is_package=True)
    spec.submodule_search_locations = list(found.submodule_search_locations)
    package = sys.modules[name] = module_from_spec(spec)
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)
    return package


def _import_without_models() -> None:
    _, client, _ = [_enter(name) for name in _PACKAGES]
    # What `config` imports from the package and not from the module.
    from kubernetes_asyncio.client.configuration import Configuration

    vars(client)["Configuration"] = Configuration
    from kubernetes_asyncio.client.api_client import ApiClient

    vars(client)["ApiClient"] = ApiClient
    import kubernetes_asyncio.config  # noqa: F401 (whether it can be imported so)


if _LIBRARY not in sys.modules:
    try:
        _import_without_models()
    except (ImportError, AttributeError):
        for _name in [name for name in sys.modules if name.partition(".")[0] == _LIBRARY]:
            del sys.modules[_name]

from kubernetes_asyncio import config
from kubernetes_asyncio.client.api_client import ApiClient
from kubernetes_asyncio.client.configuration import Configuration
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, KubeConfigLoader

__all__ = [
    "KUBE_CONFIG_DEFAULT_LOCATION",
    "ApiClient",
    "ApiException",
    "ConfigException",
    "Configuration",
    "KubeConfigLoader",
    "config",
]
