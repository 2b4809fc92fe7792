"""What is told of a program that failed: its last lines, if they say why."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.controllers.elasticjob.master import Provision, master_pod
from elasticjob.controllers.jobresource.pods import Birth, pod_manifest
from elasticjob.controllers.nodes.exits import Exit
from elasticjob.controllers.nodes.relaunch import Node
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.sizing.exits import ExitReason
from lab.build.jobs import job, resource, template

POLICY = "terminationMessagePolicy"


def container(**main: Any) -> Manifest:
    """Return the container of a pod whose template says `main` about its own."""
    owner = job({"worker": {"replicas": 1, "template": template(**main)}})
    manifest = pod_manifest(owner, resource(), Birth("worker", 0), master="10.0.0.1:50001", nodes=1)
    found: Manifest = manifest["spec"]["containers"][0]
    return found


def test_the_log_of_a_program_without_last_words_speaks_for_it() -> None:
    assert container()[POLICY] == "FallbackToLogsOnError"
    assert container(**{POLICY: "File"})[POLICY] == "File"
    master = master_pod(job(), Node("master", 0), Provision("elasticjob/trainer"))
    assert master.manifest["spec"]["containers"][0][POLICY] == "FallbackToLogsOnError"


@pytest.mark.parametrize(
    ("reason", "words", "sentence"),
    [
        (ExitReason.FATAL_ERROR, "Traceback\nValueError: no data", "exit code 9: ValueError: no data"),
        (
            ExitReason.FATAL_ERROR,
            "╭─ Error ──────╮\n│ No such option: --nope │\n╰──────────────╯\n",
            "exit code 9: No such option: --nope",
        ),
        (ExitReason.OOM_KILLED, "step 7: loss 0.3", "OOMKilled at 4Gi"),
        (ExitReason.KILLED, "step 7: loss 0.3", "exit code 9"),
        (
            ExitReason.OOM_KILLED,
            '{"message": "worker 0 was killed"}',
            "OOMKilled at 4Gi: worker 0 was killed",
        ),
    ],
)
def test_the_last_line_is_told_where_it_is_about_the_end(
    reason: ExitReason, words: str, sentence: str
) -> None:
    assert Exit(reason, 9, words, "4Gi").sentence == sentence
