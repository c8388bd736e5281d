"""The import of the Kubernetes client library without the models of every API."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_MODULES = "print(sum(name.partition('.')[0] == 'kubernetes_asyncio' for name in sys.modules))"
_LOADER = "from extender.kube.client_library import ApiClient, KubeConfigLoader, config; print(config.load_kube_config.__name__)"


def _run(script: str) -> list[str]:
    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_serve_imports_no_model_of_the_library() -> None:
    assert int(_run(f"import sys, extender.cli.serve; {_MODULES}")[-1]) < 30


@pytest.mark.parametrize(
    "before",
    [
        "import kubernetes_asyncio",  # then its own modules are used, not a second copy
        # Another layout: a later minor version may import what is not there.
        "import sys, types; sys.modules['kubernetes_asyncio.client.rest'] = types.ModuleType('rest')",
    ],
)
def test_the_ordinary_import_is_used_where_the_light_one_is_not_possible(before: str) -> None:
    assert _run(f"{before}\nimport sys\n{_LOADER}\n{_MODULES}")[-2:][0] == "load_kube_config"


def test_only_one_module_imports_the_library() -> None:
    """An import elsewhere would load all models, if it came first."""
    files = [
        path for path in (ROOT / "extender").rglob("*.py") if "kubernetes_asyncio" in path.read_text(encoding="utf-8")
    ]
    importing = [
        path.name
        for path in files
        if any(
            line.startswith(("import kubernetes_asyncio", "from kubernetes_asyncio"))
            for line in path.read_text().splitlines()
        )
    ]
    assert importing == ["client_library.py"]
