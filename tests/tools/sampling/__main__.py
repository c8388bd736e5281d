"""`python -m tests.tools.sampling`: what each sampling loses against the best of all nodes, by workload, as a table.

Each cell is the mean and the worst loss in points of 100 for one plugin. With `--plain`: pods that no rule touches, placed by kube-scheduler's
own scores, by answers of one name, and from shortlists; the weighted sum of the score plugins, at most 700 with the default weights.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.tools.sampling.plain_pods import WAYS, PlainPods
from tests.tools.sampling.quality import Field
from tests.tools.sampling.workloads import BY_NAME, WORKLOADS


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.sampling", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=300, help="incoming pods of each workload (default 300)")
    parser.add_argument("--percentages", type=int, nargs="+", default=[100, 0, 5, 2])
    parser.add_argument("--only", default="", help="workloads whose names begin so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--margin",
        type=float,
        default=0.0,
        help="points by which a node outside of the sample has to be better for a nomination",
    )
    parser.add_argument(
        "--fill", action="store_true", help="of A1: a pod for each node, and how many no sampled node took"
    )
    parser.add_argument("--plain", action="store_true", help="pods that no rule touches, by who chooses the node")
    chosen = parser.parse_args(arguments)
    if chosen.plain:
        print("| node chosen by | sampling | points of a placement | lost against the best of the sample | at most |")
        print("|---|---|---|---|---|")
        for percentage in chosen.percentages:
            for way in WAYS:
                worth = PlainPods(way, chosen.nodes, chosen.seed).play(chosen.pods, percentage)
                print(f"| {way} | {f'{percentage} %' if percentage else 'default'} | {worth.line()} |", flush=True)
        return 0
    if chosen.fill:
        for percentage in chosen.percentages:
            rejected = Field(BY_NAME["A1"], chosen.nodes, chosen.seed).fill(percentage)
            print(f"{percentage} %: {rejected} of {chosen.nodes} pods rejected on the whole sample")
        return 0
    print(
        "| workload | sampling | constraints | node preference | free resources | nominated elsewhere | for a preference |"
    )
    print("|---|---|---|---|---|---|---|")
    for workload in WORKLOADS:
        for percentage in chosen.percentages if workload.name.startswith(chosen.only) else ():
            loss = Field(workload, chosen.nodes, chosen.seed, chosen.margin).play(chosen.pods, percentage)
            sampling = f"{percentage} %" if percentage else "default"
            print(f"| {workload.name} {workload.title} | {sampling} | {loss.line()} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
