"""Lives of jobs: ordinary ones, in which no alert may fire, and broken ones, whose alert has a time.

The control plane plays each in virtual time (docs/design/0021-one-seed-one-history.md), and promtool
evaluates the rules over what its programs served. `make alerts` plays all, and prints a table.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from lab.chosen import chosen
from lab.simulation.scrapes import play
from tests.kit.monitoring.rig import METRIC, RULES, rules
from tests.monitoring.cases import CASES, up

WANTED: Final = frozenset(name for rule in RULES for name in METRIC.findall(rule["expr"]))
FIRED: Final = re.compile(r'\{alertname="(\w+)".*?\} ([\d.E+]+)')
MACHINES: Final = ("n1", "n2", "n3")
TRAINS: Final = "strategy=Allreduce trains=yes"


def full(second: int, on: str = "yes") -> str:
    """Return the lines with which no machine takes a pod any more, or each does again."""
    return "\n".join(f"{second} cordon machine={each} on={on}" for each in MACHINES) + "\n"


def plans(*seconds: int) -> str:
    """Return the lines of an optimizer that asks job a for one worker more, and for one less again."""
    return "\n".join(f"{at} plan job=a workers={2 + at // 780 % 2} manual=no" for at in seconds)


@dataclass(frozen=True)
class Broken:
    """A history in which something breaks `at` a minute: its alert fires `within` some, and others `beside`.

    Nothing answers for targets that are `away`.
    """

    alert: str
    history: str
    at: int
    within: int
    beside: Collection[str] = ()
    away: Collection[str] = ()


DAY: Final = f"""
    0 dijob name=d
    0 submit job=a {TRAINS} workers=3 least=1 most=6
    30 submit job=queued {TRAINS} workers=12 least=12 queue=a
    60 submit job=suspended {TRAINS} workers=2 least=1
    90 suspend job=suspended on=yes
    1800 stall job=compiles seconds=5400
    2400 suspend job=a on=yes
    9900 suspend job=a on=no
    1801 submit job=compiles {TRAINS} workers=2 least=1 seconds=600
    10000 submit job=passing {TRAINS} workers=2 least=1 seconds=300 ttl=3600 clean=None
    10000 submit job=kept strategy=Local workers=2 least=1 seconds=300
    {full(14000)}
    14010 submit job=waits {TRAINS} workers=2 least=1 seconds=900
    {full(14720, "no")}
    {plans(*range(20280, 25000, 780))}
    30000 restart back=120
    34000 restart back=30
    40000 lose machine=n1 seconds=1800
    44000 lose machine=n2 seconds=3600
    48000 lose machine=n3 seconds=600
    52000 lose machine=n1 seconds=600
    52000 lose machine=n2 seconds=600
    52000 lose machine=n3 seconds=600
    60000 cordon machine=n1 on=yes
    63600 cordon machine=n1 on=no
    66000 crash write=1 when=after back=1 program=master
    70000 end-pod job=a index=0 code=137
    72000 scale job=a workers=5
    76000 scale job=a workers=2
    77000 suspend job=a on=yes
    82800 edit job=queued workers=1 least=1"""
ORDINARY: Final[Mapping[str, tuple[str, int]]] = {
    "a first machine that comes after 12 minutes": (
        f"""{full(0)}
        10 submit job=a {TRAINS} workers=2 least=1 seconds=600
        {full(720, "no")}""",
        60,
    ),
    "a spot machine that is gone for hours": (
        f"""0 submit job=a {TRAINS} workers=3 least=1
        {full(600)}
        1200 lose machine=n1 seconds=36000""",
        150,
    ),
    "a day": (DAY, 1440),
}
"""Histories, and the minutes for which they are looked at."""

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
        60 submit job=a {TRAINS} workers=2 least=1 most=4
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
        within=48,
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
BY_HAND: Final[Mapping[str, tuple[int, int]]] = {
    "ElasticJobMemoryCeiling": (5, 3),
    "ElasticJobStraggler": (5, 12),
    "ElasticJobGoodputBurnsSlowly": (0, 100),
    "ElasticJobCheckpointFails": (5, 7),
    "ElasticJobCheckpointOld": (0, 127),
    "ElasticJobMasterErrors": (5, 7),
    "ElasticJobOperatorNoLeader": (5, 4),
    "ElasticJobPassErrors": (0, 20),
    "ElasticJobQueueBacklog": (5, 17),
    "ElasticJobReconcileStuck": (0, 17),
    "ElasticJobCacheStale": (0, 17),
    "ElasticJobWebhookErrors": (0, 12),
    "ElasticJobWebhookCertificateExpires": (0, 11),
    "ElasticJobBrainDatabaseFails": (0, 7),
    "ElasticJobBrainErrors": (0, 12),
    "ElasticJobDIServerErrors": (0, 12),
}
"""What the virtual world cannot break, by the series in `cases.py`: when it breaks, and its minutes."""


def fired(history: str, minutes: int, away: Collection[str] = ()) -> Mapping[str, float]:
    """Return after how many minutes of a history each alert fires first."""
    series, wrong = play(history, minutes, WANTED, away)
    assert not wrong, wrong
    return alerts_of(series, minutes)


def alerts_of(series: Mapping[str, str], minutes: int, *, every: int = 1) -> Mapping[str, float]:
    """Return after how many minutes of some series each alert fires first, as promtool evaluates the rules.

    It says what it has got where it expected something else: so it is told to expect nothing.
    """
    first = 'min by (alertname) (min_over_time(timestamp(ALERTS{alertstate="firing"})[2d:1m]))'
    test = {
        "interval": f"{every}m",
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


def report(
    name: str, found: Mapping[str, float], at: int, within: int, beside: Collection[str] = ()
) -> list[str]:
    """Print when an alert fired, and return its name if that was late or others were beside it."""
    took, others = found.get(name, float("inf")) - at, {*found} - {name, *beside}
    print(f"{name:40} {took:5.0f} of {within:3} min  {', '.join(others)}", flush=True)
    return [name] if took > within or others else []


def main(only: Collection[str]) -> int:
    """Print when each alert fired, and return 1 where one was false or late."""
    wrong = list[str]()
    for name, (history, minutes) in ORDINARY.items():
        if name in only:
            false = fired(history, minutes)
            wrong += [name] if false else []
            print(f"{name:50} {minutes:5} min  {dict(false) or 'no alert'}", flush=True)
    for each in BROKEN:
        if each.alert in only:
            found = fired(each.history, each.at + each.within + 1, each.away)
            wrong += report(each.alert, found, each.at, each.within, each.beside)
    for name, (at, within) in BY_HAND.items():
        if name in only:
            case = next(each for each in CASES if each.alert == name)
            found = alerts_of({up("operator"): "1x200", **case.series}, at + within + 1, every=case.every)
            wrong += report(name, found, at, within)
    print(f"{len(wrong)} are wrong: {', '.join(wrong)}" if wrong else "none is false or late")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(chosen(__doc__, [*ORDINARY, *(each.alert for each in BROKEN), *BY_HAND])))
