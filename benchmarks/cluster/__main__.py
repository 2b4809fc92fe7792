"""Planners of the whole cluster in virtual time, beside published results.

python -m benchmarks.cluster                                 all of it, with plots in bench-cluster/
python -m benchmarks.cluster --jobs FILE --models FOLDER     any workload of the published form
python -m benchmarks.cluster experiments|planning|pollux|goodput
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Final

from benchmarks.cluster import experiments, goodput, planning, pollux

ALL: Final = (
    ("experiments", "--plots", "bench-cluster"),
    ("pollux", "--plots", "bench-cluster"),
    ("planning",),
    ("goodput",),
)


def main(arguments: Sequence[str]) -> None:
    """Run one of the benchmarks, or all."""
    parser = ArgumentParser(
        prog="python -m benchmarks.cluster",
        description=__doc__,
        formatter_class=RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True)
    for benchmark in (experiments, planning, pollux, goodput):
        benchmark.add(commands)
    given = [arguments] if arguments else ALL
    if arguments and arguments[0].startswith("--") and arguments[0] != "--help":
        given = [("pollux", *arguments)]
    for each in given:
        options = parser.parse_args(each)
        options.run(options)


if __name__ == "__main__":
    main(sys.argv[1:])
