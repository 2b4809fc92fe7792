"""Planners of the whole cluster in virtual time, beside published results.

python -m benchmarks.cluster experiments
python -m benchmarks.cluster planning
python -m benchmarks.cluster pollux --traces FOLDER
python -m benchmarks.cluster goodput
"""

from __future__ import annotations

from argparse import ArgumentParser

from benchmarks.cluster import experiments, goodput, planning, pollux


def main() -> None:
    """Run one of the benchmarks."""
    parser = ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for benchmark in (experiments, planning, pollux, goodput):
        benchmark.add(commands)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
