"""Lives of jobs: ordinary ones, in which no alert may fire, and broken ones, each with the time that its alert has.

The control plane plays each of them in virtual time (docs/design/0021-one-seed-one-history.md), and promtool evaluates
the rules over what its programs served. `python -m tests.monitoring.lives` plays all and prints a table.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from lab.simulation.scrapes import play
from tests.kit.monitoring.rig import METRIC, RULES, rules

WANTED: Final = frozenset(name for rule in RULES for name in METRIC.findall(rule["expr"]))
FIRED: Final = re.compile(r'\{alertname="(\w+)".*?\} ([\d.E+]+)')
MACHINES: Final = ("n1", "n2", "n3")
TRAINS: Final = "strategy=Allreduce trains=yes"


def full(second: int, on: str = "yes") -> str:
    """Return the lines with which no machine takes a pod any more, or each does again."""
    return "\n".join(f"{second} cordon machine={each} on={on}" for each in MACHINES) + "\n"


def plans(*seconds: int) -> str:
    """Return the lines of an optimizer that asks job a for one worker more, and for one less again."""
    return "\n".join(f"{at} plan job=a workers={3 - at // 780 % 2} manual=no" for at in seconds)


@dataclass(frozen=True)
class Broken:
    """A history in which something breaks at a minute: its alert fires `within` minutes, and beside it only others
    that are true as well."""

    alert: str
    history: str
    at: int
    within: int
    beside: Collection[str] = ()
    away: Collection[str] = ()


ORDINARY: Final[Mapping[str, tuple[str, int]]] = {
    "a first machine that comes after 12 minutes": (
        f"""{full(0)}
        10 submit job=a {TRAINS} workers=2 least=1 seconds=600
        {full(720, "no")}""",
        60,
    ),
}

BROKEN: Final = (
    Broken(
        "ElasticJobPending",
        f"""{full(0)}
        60 submit job=a {TRAINS} workers=2 least=1""",
        at=1,
        within=17,
    ),
    Broken(  # while plans for it come and are superseded
        "ElasticJobPending",
        f"""{full(0)}
        60 submit job=a {TRAINS} workers=2 least=1
        {plans(*range(780, 3000, 780))}""",
        at=1,
        within=17,
    ),
    Broken(
        "ElasticJobFailed",
        f"0 submit job=a {TRAINS} workers=2 least=2 seconds=600 exit=1 policy=Never",
        at=10,
        within=3,
    ),
    Broken(
        "ElasticJobFailsRepeatedly",
        "\n".join(
            f"{at} submit job={job} strategy=Local workers=1 least=1 seconds=60 exit=1 policy=Never"
            for at, job in ((60, "a"), (600, "b"), (1200, "c"))
        ),
        at=21,
        within=3,
        beside=("ElasticJobFailed",),
    ),
    Broken(
        "ElasticJobRestartsBurn",
        f"""0 submit job=a {TRAINS} workers=2 least=1
        600 end-pod job=a index=0 code=1
        900 end-pod job=a index=0 code=1""",
        at=15,
        within=3,
    ),
    Broken(
        "ElasticJobRestartsSpent",
        f"""0 submit job=a {TRAINS} workers=2 least=1
        300 end-pod job=a index=0 code=1
        600 end-pod job=a index=0 code=1
        900 end-pod job=a index=0 code=1""",
        at=15,
        within=3,
        beside=("ElasticJobRestartsBurn",),
    ),
    Broken(
        "ElasticJobPlansFail",
        f"""0 submit job=a {TRAINS} workers=2 least=1 most=9
        {full(30)}
        60 plan job=a workers=5 manual=yes
        1000 plan job=a workers=6 manual=yes
        2000 plan job=a workers=5 manual=yes""",
        at=44,
        within=3,
    ),
    Broken(
        "ElasticJobMasterUnreachable",
        f"""0 submit job=a {TRAINS} workers=2 least=1
        {full(600)}
        600 crash write=1 when=after back=1 program=master""",
        at=10,
        within=7,
    ),
    Broken(
        "ElasticJobHangs",
        f"""0 submit job=a {TRAINS} workers=2 least=1
        600 stall job=a seconds=80000""",
        at=10,
        within=14,
    ),
    Broken(
        "ElasticJobWaitsForPeers",
        f"""0 submit job=a {TRAINS} workers=3 least=3
        {full(600)}
        600 end-pod job=a index=0 code=1""",
        at=10,
        within=12,
    ),
    Broken(
        "ElasticJobGoodputBurnsFast",
        f"""0 submit job=a {TRAINS} workers=3 least=3
        {full(1800)}
        1800 end-pod job=a index=0 code=1""",
        at=30,
        within=45,
        beside=("ElasticJobWaitsForPeers", "ElasticJobPending"),
    ),
    Broken(
        "ElasticJobStateUnsaved",
        f"""0 submit job=a {TRAINS} workers=2 least=1
        600 deny kind=configmaps seconds=80000""",
        at=10,
        within=12,
    ),
    Broken(
        "ElasticJobOperatorDown",
        f"""0 submit job=a {TRAINS} workers=2 least=1
        600 restart back=86400""",
        at=10,
        within=6,
    ),
    Broken(
        "ElasticJobReconcileErrors",
        f"""0 deny kind=pods seconds=80000
        60 submit job=a {TRAINS} workers=2 least=1""",
        at=1,
        within=20,
        beside=("ElasticJobPending",),
    ),
    Broken(
        "ElasticJobBrainDown",
        f"""0 brain
        0 submit job=a {TRAINS} workers=2 least=1 mode=cluster
        600 restart-brain back=86400""",
        at=10,
        within=6,
    ),
    Broken(
        "ElasticJobDIServerDown",
        "60 dijob name=d",
        at=1,
        within=7,
        away=("di-server",),
    ),
)


def fired(history: str, minutes: int, away: Collection[str] = ()) -> Mapping[str, float]:
    """Return after how many minutes of a history each alert fires first."""
    series, wrong = play(history, minutes, WANTED, away)
    assert not wrong, wrong
    return alerts_of(series, minutes)


def alerts_of(series: Mapping[str, str], minutes: int) -> Mapping[str, float]:
    """Return after how many minutes of some series each alert fires first, as promtool evaluates the rules.

    It says what it has got where it expected something else: so it is told to expect nothing.
    """
    first = 'min by (alertname) (min_over_time(timestamp(ALERTS{alertstate="firing"})[2d:1m]))'
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": first, "eval_time": f"{minutes}m", "exp_samples": []}],
    }
    suite = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    with TemporaryDirectory() as folder:
        (Path(folder) / "rules.yaml").write_text(yaml.safe_dump({"groups": rules()}))
        (Path(folder) / "suite.yaml").write_text(yaml.safe_dump(suite))
        command = ["promtool", "test", "rules", "suite.yaml"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = {name: float(seconds) / 60 for name, seconds in FIRED.findall(done.stderr)}
    assert bool(found) == bool(done.returncode), done.stdout + done.stderr
    return found


def main() -> int:
    """Print when each alert fired, and return 1 where one was false or late."""
    wrong = 0
    for name, (history, minutes) in ORDINARY.items():
        began = time.process_time()
        false = fired(history, minutes)
        wrong += bool(false)
        print(
            f"{name:60} {minutes:5} min  {false or 'no alert'}  {time.process_time() - began:.0f} s",
            flush=True,
        )
    for each in BROKEN:
        found = fired(each.history, each.at + each.within + 1, each.away)
        took = found.get(each.alert, float("inf")) - each.at
        others = {*found} - {each.alert, *each.beside}
        wrong += took > each.within or bool(others)
        print(f"{each.alert:40} {took:5.0f} of {each.within:3} min  {', '.join(others)}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
