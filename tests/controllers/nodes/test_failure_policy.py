"""runPolicy.failurePolicy: what follows from failures of nodes, for the operator and the master."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.v1alpha1.common import FailureAction
from elasticjob.api.v1alpha1.elasticjob import ExitCodeOperator, FailureRule, OnExitCodes
from elasticjob.controllers.elasticjob.decide import decide as decide_job
from elasticjob.controllers.elasticjob.seen import Seen as JobSeen
from elasticjob.controllers.jobresource.decide import Seen, decide
from elasticjob.controllers.passes.plan import Create
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.master.cluster.cluster import spec_of
from elasticjob.master.state.job import Limits
from lab.build.jobs import NOW, ended, job, life, master, oom, resource, role


def rule(action: str, *codes: int, operator: str = "In", **more: Any) -> Manifest:
    return {"action": action, "onExitCodes": {"operator": operator, "values": list(codes)}, **more}


NEVER = {"restartPolicy": "Never"}
ROWS: list[tuple[str, list[Manifest], dict[str, Any], Any, str]] = [
    ("no rule", [rule("FailJob", 3)], {}, ended(code=42), "replaced, 1 restart"),
    ("FailJob", [rule("FailJob", 42)], {}, ended(code=42), "job fails"),
    ("all codes but", [rule("FailJob", 3, operator="NotIn")], {}, ended(code=42), "job fails"),
    ("but not success", [rule("FailJob", 3, operator="NotIn")], {}, ended(code=0), "done"),
    ("Ignore", [rule("Ignore", 42)], {}, ended(code=42), "replaced, 0 restarts"),
    ("Ignore, though Never", [rule("Ignore", 42)], NEVER, ended(code=42), "replaced, 0 restarts"),
    ("Ignore, as often as it fails", [rule("Ignore", 42)], {}, ended(0, 9, 42), "replaced, 0 restarts"),
    ("Count, though a kill would not", [rule("Count", 137)], {}, ended(code=137), "replaced, 1 restart"),
    ("Count, until it is spent", [rule("Count", 42)], {}, ended(0, 3, 42, restarts_before=3), "job fails"),
    ("elsewhere", [rule("RelaunchElsewhere", 42)], {}, ended(code=42), "replaced elsewhere, 1 restart"),
    ("its role", [rule("FailJob", 42, roles=["worker"])], {}, ended(code=42), "job fails"),
    ("another role", [rule("FailJob", 42, roles=["ps"])], {}, ended(code=42), "replaced, 1 restart"),
    ("the first", [rule("Ignore", 42), rule("FailJob", 42)], {}, ended(code=42), "replaced, 0 restarts"),
    ("out of memory", [rule("FailJob", 137)], {}, oom(), "replaced, 1 restart"),
    ("run again", [rule("FailJob", 3, operator="NotIn")], {}, ended(code=75), "replaced, 0 restarts"),
    ("told to end", [rule("FailJob", 143)], {}, ended(code=143, terminating=True), "replaced, 0 restarts"),
]


@pytest.mark.parametrize(
    ("rules", "worker", "end", "then"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS]
)
def test_what_follows(rules: list[Manifest], worker: dict[str, Any], end: Any, then: str) -> None:
    given_ = job({"worker": role(2, **worker)}, runPolicy={"failurePolicy": {"rules": rules}})
    lives = (end, life(1))
    assert consequence(given_, lives) == then


def consequence(given_: Any, lives: tuple[Any, ...]) -> str:
    if (outcome := decide_job(JobSeen(given_, resource(), (master(),), lives), NOW).outcome) is not None:
        return "job succeeds" if outcome.succeeded else "job fails"
    seen = Seen(resource(), given_, lives, "10.0.0.1:50001")
    made = [each for each in decide(seen, NOW).actions if isinstance(each, Create)]
    if not made:
        return "leaves" if lives[0].terminating else "done"
    elsewhere = " elsewhere" if "affinity" in made[0].manifest["spec"] else ""
    count = int(made[0].manifest["metadata"]["annotations"]["elasticjob.dlrover/restarts"])
    return f"replaced{elsewhere}, {count} restart{'' if count == 1 else 's'}"


CODES = st.integers(1, 255)


@given(
    values=st.lists(CODES, min_size=1, max_size=3),
    operator=st.sampled_from(ExitCodeOperator),
    roles=st.lists(st.sampled_from(["worker", "ps"]), max_size=2),
    role_=st.sampled_from(["worker", "ps"]),
    code=CODES,
)
def test_the_master_reads_rules_as_the_operator_does(
    values: list[int], operator: ExitCodeOperator, roles: list[str], role_: str, code: int
) -> None:
    codes = OnExitCodes(operator=operator, values=values)
    mine = FailureRule(action=FailureAction.IGNORE, on_exit_codes=codes, roles=roles)
    given_ = job(runPolicy={"failurePolicy": {"rules": [mine.manifest()]}})
    (theirs,) = spec_of(given_, Limits()).rules
    assert mine.applies(role_, code) == theirs.applies(role_, code)
