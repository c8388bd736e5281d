"""Memory, and the time of a new template, before hostile pods come, while they are there, and after they are gone.

`python -m tests.index.growth [CASE]`: a table of resident megabytes and microseconds, each case in a process of its own
that imports what the service imports and holds 1,000 nodes and 10,000 pods of 100 templates. No limit of a pod is in
force. The figures depend on the machine; `test_growth` asserts the sizes and counts behind them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import extender.compose.service  # noqa: F401 (the memory of a service with everything that it imports)
from extender.compose.process import freeze_gc, return_large_blocks
from extender.index.cluster import ClusterIndex
from extender.model.objects import Pod
from extender.rules.catalog import counts_of_rules
from extender.settings.rules import Rules
from tests.builders import Json, namespace, node, pod_json, spread, term
from tests.index.counting import unlimited
from tests.process_memory import peak_megabytes, resident_megabytes

NODES: Final = 1_000
TEMPLATES: Final = 100
PODS: Final = 10_000
HOSTILE: Final = 500
KEYS: Final = 200
CARRIED: Final = [f"example.com/carried-{each}" for each in range(KEYS)]
TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Case:
    """Hostile pods by number. ``asked``: their constraints are compiled. ``together``: all are there at one time. ``labels``: of nodes."""

    body: Callable[[int], Json]
    count: int = HOSTILE
    asked: bool = False
    together: bool = True
    labels: Sequence[str] = ()


def invented(number: int) -> Json:
    """Anti-affinity over 200 keys of its own, which no node carries."""
    return keyed(number, "apart", [f"example.com/k{number}-{each}" for each in range(KEYS)])


def invented_affinity(number: int) -> Json:
    """The same with affinity."""
    return keyed(number, "near", [f"example.com/k{number}-{each}" for each in range(KEYS)])


def carried(number: int) -> Json:
    """Anti-affinity over 200 keys that every node carries."""
    return keyed(number, "apart", CARRIED)


def carried_own(number: int) -> Json:
    """The same, each pod with a selector of its own: no two pods share a count."""
    return keyed(number, "apart", CARRIED, f"hostile-{number}")


def keyed(number: int, kind: str, keys: list[str], app: str = "web") -> Json:
    """A pod with a required term over each of the keys."""
    terms = [term(key, app=app) for key in keys]
    name, near, apart = f"hostile-{number}", terms if kind == "near" else (), terms if kind == "apart" else ()
    return pod_json(name, on=f"n{number % NODES}", app=name, near=near, apart=apart)


def question(number: int) -> Json:
    """A pod of a template that no other has."""
    app = f"question-{number}"
    return pod_json(app, on=f"n{number % NODES}", app=app, near=[term("zone", app=app)], spreads=[spread(app=app)])


def labelled(number: int) -> Json:
    """A pod with ten labels that no other has."""
    return pod_json(f"p{number}", on=f"n{number % NODES}", labels={f"k{number}-{n}": f"v{number}" for n in range(10)})


CASES: Final = {
    "200 keys no node carries": Case(invented),
    "the same, asked": Case(invented, asked=True),
    "affinity over them, asked": Case(invented_affinity, asked=True),
    "200 keys of all nodes": Case(carried, labels=CARRIED),
    "the same, asked ": Case(carried, asked=True, labels=CARRIED),
    "own selectors": Case(carried_own, labels=CARRIED),
    "own selectors, asked": Case(carried_own, asked=True, labels=CARRIED),
    "50,000 questions": Case(question, 50_000, asked=True, together=False),
    "1,000,000 label pairs": Case(labelled, 100_000, together=False),
}


def standing(label_keys: Sequence[str] = ()) -> ClusterIndex:
    """The cluster before, every template compiled, and memory configured as in the service."""
    return_large_blocks()
    index = ClusterIndex(Rules(), counts_of_rules())
    index.upsert(namespace("default"))
    for number in range(NODES):
        labels = {key: f"v{number % (2 + at % 20)}" for at, key in enumerate(label_keys)}
        index.upsert(node(f"n{number}", zone=f"z{number % 10}", labels=labels))
    for number in range(PODS):
        app = f"app-{number % TEMPLATES}"
        body = pod_json(f"w{number}", on=f"n{number % NODES}", app=app, spreads=[spread("zone", app=app)])
        index.upsert(made := unlimited(body))
        index.view.compiled(made.signature)
    freeze_gc()
    return index


def new_template(index: ClusterIndex) -> float:
    """Microseconds to compile the constraints of a new template, the median of some."""
    times: list[float] = []
    for number in range(TRIES):
        app = f"new-{number}-{len(index.counts.compiler)}-{perf_counter()}".replace(".", "-")
        made = unlimited(pod_json(app, app=app, near=[term("zone", app=app)], spreads=[spread("zone", app="app-1")]))
        started = perf_counter()
        index.view.compiled(made.signature)
        times.append(perf_counter() - started)
    return sorted(times)[TRIES // 2] * 1e6


def play(index: ClusterIndex, case: Case) -> Iterator[Pod]:
    """The pods of a case that are there at the end."""
    for number in range(case.count):
        made = unlimited(case.body(number))
        index.upsert(made)
        if case.asked:
            index.view.compiled(made.signature)
        if case.together:
            yield made
        else:
            index.delete(made)


def run(name: str) -> str:
    """One case in this process, as a line of the table."""
    index = standing(CASES[name].labels)
    new_template(index)
    megabytes, times = [resident_megabytes()], [new_template(index)]
    here = list(play(index, CASES[name]))
    megabytes += resident_megabytes(), peak_megabytes()
    times.append(new_template(index))
    while here:
        index.delete(here.pop())
    megabytes.append(resident_megabytes())
    times.append(new_template(index))
    sizes = " ".join(f"{each:6.0f}" for each in megabytes)
    took = " ".join(f"{each:6.0f}" for each in times)
    return f"{name:26} {sizes} {megabytes[-1] / megabytes[0] - 1:+6.0%}   {took} {times[-1] / times[0] - 1:+6.0%}\n"


def main(arguments: list[str]) -> None:
    """All cases, or those that are named."""
    if arguments[:1] == ["--here"]:
        sys.stdout.write(run(arguments[1]))
        return
    sys.stdout.write(f"{'megabytes, microseconds':26} before   held   peak  after          before   held  after\n")
    for name in arguments or CASES:
        sys.stdout.flush()
        subprocess.run([sys.executable, "-m", "tests.index.growth", "--here", name], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
