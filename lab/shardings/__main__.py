"""Random meshes, models and kills: all is equal bit for bit, or refused before the first step."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter

import torch
import torch._dynamo  # each fork would import it

from lab.processes import end_on_sigterm
from lab.shardings.cases import Case, draw, sizes
from lab.shardings.lives import play


def main() -> int:
    """Play cases, and print a table of them; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    parser.add_argument("--cases", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--only", nargs="+", help="cases, as they are printed")
    given = parser.parse_args()
    end_on_sigterm()
    torch.set_num_threads(1)
    drawn = (draw(given.seed, given.first + number) for number in range(given.cases))
    cases = map(Case, given.only) if given.only else drawn
    ways, said = Counter[tuple[str, str]](), Counter[str]()
    for number, case in enumerate(cases, given.first):
        way, sentence = play(case)
        print(f"{number:4} {way:8} {case.text}  {sentence}", flush=True)
        ways[" × ".join(sizes(case.layouts[0])), way] += 1
        said[re.sub(r"\S*/\S*|\d+", "…", sentence)] += 1
    columns = sorted({way for _, way in ways})
    print("\nfirst mesh".ljust(18), *(way.rjust(8) for way in columns))
    for mesh in sorted({mesh for mesh, _ in ways}):
        print(mesh.ljust(17), *(str(ways[mesh, way] or "").rjust(8) for way in columns))
    print(*(f"{many:4}  {sentence}" for sentence, many in said.most_common() if sentence), sep="\n")
    return int(not {*columns} <= {"equal", "refused"})


if __name__ == "__main__":
    sys.exit(main())
