"""The shape of the code: what import-linter cannot see. The contracts themselves stand in pyproject.toml."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest

from extender.index.cluster import ClusterIndex
from extender.index.view import ClusterView
from extender.rules import catalog
from extender.settings.configuration import Settings
from extender.settings.rules import Rules

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "extender"
# What writes the files of a folder stands in it: programs of a checkout, which no wheel holds.
GENERATORS = ("deploy", "grafana")
MODULES = sorted(path for folder in ("extender", "tests", *GENERATORS) for path in (ROOT / folder).rglob("*.py"))
PURE_FLOORS = ("model", "wire", "index", "rules", "verbs", "settings")
# The floors by height. Two floors of one height do not know each other.
HEIGHTS = (
    *(("model",), ("settings",), ("wire", "index"), ("rules",), ("verbs",), ("doctor",), ("telemetry",)),
    *(("kube", "certificates"), ("tasks", "simulator"), ("server",), ("compose",), ("cli",)),
)
# On which floor a file of a feature stands, by its name.
FLOOR_OF_FILE = {
    "charges": "model",
    "directive": "model",
    "answers": "model",
    "settings": "settings",
    "schema": "wire",
    "table": "index",
    "crossing": "index",
    "rule": "rules",
    "native": "verbs",
    "broken": "verbs",
    "moves": "verbs",
    "plan": "tasks",
    "blocks": "tasks",
    "mover": "tasks",
    "stored": "tasks",
    "endpoint": "server",
    "building": "compose",
    "report": "doctor",
    "cli": "cli",
}
# The modules of the kernel that know a feature, and the files of it that they know.
KNOWN_FEATURES = {
    "model/policies.py": {"execution.directive"},
    "wire/policies/policies_v1.py": {"execution.directive", "execution.schema"},
    "wire/policies/policy_schema.py": {"execution.schema"},
    "cli/policy.py": {"execution.broken"},
    "cli/whatif.py": {"execution.cli"},
    "model/answers/what_if.py": {"execution.answers"},
    "tasks/what_if/computing.py": {"execution.answers", "execution.schema", "execution.plan"},
    "tasks/browse_service.py": {"execution.plan"},
    "server/collaborators.py": {"execution.answers"},
    "server/v1/operations.py": {"execution.endpoint"},
    "settings/configuration.py": {"execution.settings", "quotas.settings"},
    "wire/objects/kinds.py": {"quotas.schema"},
    "wire/objects/trim.py": {"quotas.schema"},
    "rules/catalog.py": {"quotas.rule"},
    "verbs/filter.py": {"quotas.rule"},
    "compose/foundation.py": {"quotas.table"},
    "compose/reporting.py": {"quotas.crossing", "quotas.table"},
    "compose/service.py": {"execution.building", "quotas.crossing"},
    "cli/doctor.py": {"execution.report", "quotas.report"},
}
FORBIDDEN_BELOW = {
    "asyncio",
    "logging",
    "aiohttp",
    "kubernetes_asyncio",
    "prometheus_client",
    "socket",
    "time",
    "random",
}
FLOORS = "|".join(each.name for each in PACKAGE.iterdir() if each.is_dir())
LONGEST_FILE = 600
# What rules, verbs and the server may know of the index: views, values, and trials that undo themselves.
READ_SIDE_BY_MODULE = {
    "index.availability": "DomainExclusion DomainsView",
    "index.charges": "ChargesView ReleaseView",
    "index.claims.reserved": "ReservedView",
    "index.counts.compiled_constraints": "CompiledConstraints Counted Counting",
    "index.counts.groups": "Expected GroupView PlacedPods SpreadGroupView",
    "index.counts.term_counts": "TermGroupView",
    "index.nodes.columns": "ByNumber ColumnView",
    "index.nodes.domains": "KeyView NodeMatches ScopeView",
    "index.nodes.requested_shares": "BalanceView NodeShares SharesView",
    "index.nodes.room": "RoomView",
    "index.objects.changes": "Subscribable",
    "index.policies": "PoliciesView",
    "index.trial": "Trial",
    "features.quotas.table": "CurrentReach QuotasView QuotaUse",
    "index.view": "ClusterView",
}
READ_SIDE: dict[str, type] = {
    name: getattr(import_module(f"extender.{module}"), name)
    for module, names in READ_SIDE_BY_MODULE.items()
    for name in names.split()
}
# The modules of the index, and the tables that features keep beside it.
OF_INDEX = re.compile(r"extender\.(index\.|features\.\w+\.table\b)")
VALUES = (
    "NodeNumber",
    "DomainNumber",
    "Column",
    "OTHERS",
    "Inclusion",
    "PodSelector",
    "pod_selector",
    "TermRole",
    "TrialSteps",
)
SHORT_FILE = 60
MOST_PUBLIC_METHODS = 20
# Rooms without a purpose of their own fill with whatever fits nowhere else.
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc"}


def name_of(path: Path) -> str:
    """The path from the repository's root, for messages."""
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def modules_below(*floors: str) -> list[Path]:
    """The modules of floors, each a package or a single file."""
    return [path for path in MODULES for floor in floors if path.is_relative_to(PACKAGE / floor)]


def floor_of(path: Path) -> str:
    """The floor of a module, in a feature by the name of its file."""
    parts = path.relative_to(PACKAGE).parts
    return FLOOR_OF_FILE[path.stem] if parts[0] == "features" else parts[0]


def feature_modules() -> list[Path]:
    return [path for path in modules_below("features") if path.name != "__init__.py"]


def pure_modules() -> list[Path]:
    """The modules below the line."""
    below = [path for path in feature_modules() if floor_of(path) in PURE_FLOORS]
    return [*modules_below(*PURE_FLOORS), *below]


def imported_modules(path: Path) -> Iterator[Path]:
    """The modules of the package that a module imports."""
    for name in imported_names(path):
        parts = name.split(".")
        for found in (ROOT.joinpath(*parts), ROOT.joinpath(*parts[:-1])):
            if parts[0] == "extender" and found.with_suffix(".py").is_file():
                yield found.with_suffix(".py")


def imported_names(path: Path) -> Iterator[str]:
    """Every dotted name that an import statement makes available."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def field_names(section: type[msgspec.Struct]) -> set[str]:
    """The names of all settings, as code reads them."""
    names: set[str] = set()
    for field in msgspec.structs.fields(section):
        names.add(field.name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            names |= field_names(field.type)
    return names


def test_a_file_of_a_feature_imports_from_its_floor_and_below() -> None:
    """And the kernel imports a file of a feature where it might import a file of that floor."""
    height = {floor: at for at, floors in enumerate(HEIGHTS) for floor in floors}
    found = [
        f"{name_of(path)} ({own}): {name_of(other)} ({theirs})"
        for path in modules_below("")
        if path.parent != PACKAGE and path.name != "__init__.py"
        for other in imported_modules(path)
        if other.parent != PACKAGE and "features" in {path.parts[-3], other.parts[-3]}
        for own, theirs in [(floor_of(path), floor_of(other))]
        if own != theirs and height[own] <= height[theirs]
    ]
    assert found == []


def test_features_do_not_know_each_other() -> None:
    found = [
        f"{name_of(path)}: {name_of(other)}"
        for path in feature_modules()
        for other in imported_modules(path)
        if other in feature_modules() and other.parent != path.parent
    ]
    assert found == []


def test_the_kernel_knows_features_at_listed_places() -> None:
    known: dict[str, set[str]] = {}
    for path in modules_below(""):
        for other in imported_modules(path):
            if other in feature_modules() and path not in feature_modules():
                name = ".".join(other.relative_to(PACKAGE / "features").with_suffix("").parts)
                known.setdefault(path.relative_to(PACKAGE).as_posix(), set()).add(name)
    assert known == KNOWN_FEATURES


def test_files_of_features_below_the_line_do_no_io() -> None:
    found = [
        f"{name_of(path)}: {name}"
        for path in feature_modules()
        if path in pure_modules()
        for name in imported_names(path)
        if name.partition(".")[0] in FORBIDDEN_BELOW
    ]
    assert found == []


# Writers that need no term of leadership, by file and class.
UNCHECKED_WRITERS = {
    "extender/compose/leadership.py: Writer": "the Lease itself",
    "extender/compose/admission.py: WebhookObjects": "the EndpointSlice of a replica, which each replica writes",
}


def test_every_other_writer_is_checked_for_the_term_of_its_leader() -> None:
    """Only the job of a leader is cancelled with its Lease. A write that the job has begun to prepare is refused."""
    writers = set(
        re.findall(r"^class (\w+)\((?:Calls|_Recording)\)", text_of(PACKAGE / "kube/writer.py"), re.MULTILINE)
    )
    made = [
        (path, node)
        for path in modules_below("compose")
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in writers
    ]
    unchecked = [
        f"{path.relative_to(ROOT).as_posix()}: {ast.unparse(node.func)}"
        for path, node in made
        if len(node.args) < 4 and "check" not in {keyword.arg for keyword in node.keywords}
    ]
    assert len(made) > len(unchecked)
    assert sorted(unchecked) == sorted(UNCHECKED_WRITERS)


def test_every_setting_is_read_somewhere() -> None:
    """A setting that does nothing would be a promise that is not kept."""
    sources = [path for path in PACKAGE.rglob("*.py") if "settings" not in {path.parent.name, path.stem}]
    nodes = [node for path in sources for node in ast.walk(tree_of(path))]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    read |= {
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }  # attrgetter
    assert {name for name in field_names(Settings) if name not in read} == set()


def test_every_module_says_what_its_job_is() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree_of(path))] == []


def test_every_module_has_at_most_600_lines() -> None:
    """One that is longer has a second subject."""
    assert [name_of(path) for path in MODULES if len(text_of(path).splitlines()) > LONGEST_FILE] == []


def test_at_most_a_tenth_of_the_modules_is_short() -> None:
    """A reader opens each of them for little. One that is short needs a reason to stand alone."""
    modules = [path for path in modules_below("") if path.name != "__init__.py"]
    short = [name_of(path) for path in modules if len(text_of(path).splitlines()) < SHORT_FILE]
    assert len(short) <= len(modules) * 0.1, short


# Where the time of day is read, and what for. It may jump, so nothing that is decided is measured by it: `kube/timing.py` has
# the clocks for that.
TIME_OF_DAY = {
    "extender/kube/timing.py": "WallClock, which compares dates of others",
    "extender/server/transport/tls.py": "whether a certificate is valid, as its peers find it",
    "extender/server/verbs.py": "shown with a decision",
    "extender/telemetry/metrics.py": "a metric",
    "extender/telemetry/verb_metrics.py": "a metric",
    "extender/compose/service.py": "shown, a metric, and a snapshot that is read once",
    "extender/compose/leadership.py": "written into the Lease; expiry is decided by the monotonic clock",
    "extender/compose/preemption.py": "written into conditions and events",
    "extender/compose/rejected_pods.py": "written into events",
    "extender/compose/recording.py": "written into a recording",
    "extender/compose/admission.py": "written into the status of policies",
}


def test_the_time_of_day_is_read_where_it_is_shown_or_written() -> None:
    reads = re.compile(r"\btime\.time\b|\bdatetime\.now\b|from time import .*\btime\b|set_to_current_time")
    found = {
        name_of(path)
        for path in modules_below("")
        if reads.search(text_of(path)) and floor_of(path) not in ("cli", "simulator")
    }
    assert found == TIME_OF_DAY.keys()


def test_a_package_holds_its_docstring_and_nothing_else() -> None:
    """Nothing is exported a second time."""
    packages = [path for path in MODULES if path.name == "__init__.py"]
    assert [name_of(path) for path in packages if [type(node) for node in tree_of(path).body] != [ast.Expr]] == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = sorted({path.parent for path in MODULES})
    assert [name_of(path) for path in folders if not (path / "__init__.py").is_file()] == []


def test_a_module_that_a_comment_names_exists() -> None:
    missing = [f"{name_of(path)}: {name}" for path in modules_below("") for name in missing_modules(path)]
    assert missing == []


def missing_modules(path: Path) -> Iterator[str]:
    """Names that lead nowhere: `rules/rule.py`, below the package or a folder of the module; `rules.rule`, `rules.rule.Rule`."""
    folders = [each for each in path.parents if each.is_relative_to(ROOT)]
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", text_of(path)):
        if not any((folder / name).is_file() for folder in folders):
            yield name
    for name in re.findall(rf"`((?:{FLOORS})(?:\.[a-z_0-9]+)+(?:\.[A-Z_]\w*)?)`", text_of(path)):
        parts = name.split(".")
        found = PACKAGE.joinpath(*parts)
        owner = PACKAGE.joinpath(*parts[:-1]).with_suffix(".py")
        is_module = found.is_dir() or found.with_suffix(".py").is_file()
        if not is_module and not (owner.is_file() and parts[-1] in text_of(owner)):
            yield name


def test_no_module_is_named_for_nothing_in_particular() -> None:
    assert [path for path in MODULES if VAGUE_NAMES & {path.stem, *path.relative_to(ROOT).parts}] == []


def test_tests_have_one_virtual_clock() -> None:
    """Beside the clock of the soak, which is that of its event loop."""
    classes = [(path, node) for path in MODULES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    clocks = {
        f"{name_of(path)}: {found.name}"
        for path, found in classes
        if path.is_relative_to(ROOT / "tests")
        and any(isinstance(item, ast.AsyncFunctionDef) and item.name == "sleep" for item in found.body)
    }
    assert clocks == {"tests/fakes.py: FakeClock", "tests/soak/virtual_time.py: LoopClock"}


WAITS = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)


def test_nothing_below_telemetry_awaits() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in pure_modules()
        for node in nodes_of(path)
        if isinstance(node, WAITS)
    ]
    assert found == []


def test_nothing_awaits_while_counts_are_changed_for_a_trial() -> None:
    """Other tasks would decide by them. Work in steps suspends its trial for a pause."""
    blocks = [(path, node) for path in MODULES for node in nodes_of(path) if isinstance(node, ast.With)]
    trials = [(path, block) for path, block in blocks if any(_begins_trial(item.context_expr) for item in block.items)]
    assert len(trials) > 8
    assert [name_of(path) for path, block in trials if any(isinstance(node, WAITS) for node in ast.walk(block))] == []


def _begins_trial(entered: ast.expr) -> bool:
    called = entered.func if isinstance(entered, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in {"trial", "apart", "_apart"}


def test_no_class_has_more_than_20_public_methods() -> None:
    """A larger class has a second purpose."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    sizes = {
        f"{name_of(path)}: {each.name}": sum(
            isinstance(item, functions) and not item.name.startswith("_") for item in each.body
        )
        for path in modules_below("")
        for each in nodes_of(path)
        if isinstance(each, ast.ClassDef)
    }
    assert {name: size for name, size in sizes.items() if size > MOST_PUBLIC_METHODS} == {}


def index_classes_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and OF_INDEX.match(hint.__module__):
        yield hint
    for part in get_args(hint):
        yield from (
            index_classes_in(part)
            if not isinstance(part, list)
            else (c for each in part for c in index_classes_in(each))
        )


def given_out_by(shown: type, bound: Mapping[str, object]) -> Iterator[object]:
    """The types of the public attributes of a class, and of what its public methods return. ``bound``: readers of an instance."""
    yield from (hint for name, hint in get_type_hints(shown).items() if not name.startswith("_"))
    for name, member in (*inspect.getmembers(shown), *bound.items()):
        function = member.fget if isinstance(member, property) else member
        if (
            not name.startswith("_")
            and (inspect.isfunction(function) or inspect.ismethod(function))
            and name not in get_type_hints(shown)
        ):
            yield get_type_hints(function).get("return")


def test_decisions_import_the_read_side_of_the_index() -> None:
    found = [
        f"{name_of(path)}: {name}"
        for path in (*modules_below("rules", "verbs", "server", "doctor"), *feature_modules())
        if floor_of(path) in {"rules", "verbs", "server", "doctor"}
        for name in imported_names(path)
        if OF_INDEX.match(name) and name.rpartition(".")[2] not in {*READ_SIDE, *VALUES}
    ]
    assert found == []


@pytest.mark.parametrize("shown", READ_SIDE.values(), ids=lambda each: each.__name__)
def test_nothing_that_writes_the_index_is_reachable_from_its_read_side(shown: type) -> None:
    """By types, which the type checker holds everyone to. Tables are given out as mappings, sequences and sets without writers."""
    bound = vars(ClusterIndex(Rules(), ()).view) if shown is ClusterView else {}
    given = list(given_out_by(shown, bound))
    assert {each.__name__ for hint in given for each in index_classes_in(hint)} <= {*READ_SIDE, *VALUES}
    attributes = [hint for name, hint in get_type_hints(shown).items() if not name.startswith("_")]
    assert {get_origin(hint) for hint in attributes}.isdisjoint({dict, list, set})


def test_the_contract_on_rules_names_every_rule() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (contract,) = [found for found in contracts if found["name"] == "Rules do not know each other"]
    assert set(contract["modules"]) == {type(rule).__module__ for rule in (*catalog.RULES, catalog.NODE_FIT)}


def test_only_the_files_module_reads_the_environment() -> None:
    environment = {"environ", "environb", "getenv"}
    found = [
        f"{name_of(path)}: {name}"
        for path in modules_below("")
        if path != PACKAGE / "cli/files.py"
        for name in (
            *(node.attr for node in nodes_of(path) if isinstance(node, ast.Attribute)),
            *(name.rpartition(".")[2] for name in imported_names(path)),
        )
        if name in environment
    ]
    assert found == []
