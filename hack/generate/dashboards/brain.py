"""The dashboard of Brain: who asks it, what it decides, its passes, API server, process."""

from __future__ import annotations

from typing import Final

from hack.generate.dashboards.panels import AMBER, BLUE, GRAPH, RED, Board, Query, Row, Unit, graph, number
from hack.generate.dashboards.program import Program, api, passes, process, summary

PROGRAM: Final = Program("elasticjob-brain")
ASKED: Final = "elasticjob_brain_request_seconds"
SHARED: Final = "elasticjob_fulfilment"

NOW: Final = summary(
    PROGRAM,
    number(
        "Refused requests",
        "Requests that got an error within five minutes.",
        f'sum(increase({ASKED}_count{{{PROGRAM.here},code=~"5.."}}[5m])) or vector(0)',
        steps={1: AMBER, 20: RED},
    ),
    number(
        "Failed passes",
        "Passes over a job that failed within five minutes.",
        f"sum(increase(elasticjob_kube_failed_passes_total{{{PROGRAM.here}}}[5m]))",
        steps={1: AMBER, 20: RED},
    ),
)
REQUESTS: Final = Row(
    "Requests",
    (
        graph(
            "Requests",
            "Of masters and readers in a second, by kind and HTTP code.",
            Query(f"sum by (verb, code) ({PROGRAM.rate(f'{ASKED}_count')})", "{{verb}} {{code}}"),
            unit=Unit.PER_SECOND,
        ),
        graph(
            "Time of a request",
            "99 of 100 answers take less, by kind.",
            Query(PROGRAM.quantile(0.99, ASKED, "verb"), "{{verb}}"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Failures",
            "Passes over a job that failed, by loop, and failed transactions of the database, in a second.",
            Query(f"sum by (loop) ({PROGRAM.rate('elasticjob_kube_failed_passes_total')})", "{{loop}}"),
            Query(f"sum({PROGRAM.rate('elasticjob_brain_database_errors_total')})", "database"),
            unit=Unit.PER_SECOND,
        ),
    ),
)
SHARING: Final = Row(
    "Sharing of the cluster",
    (
        number(
            "Jobs that wait",
            "Jobs without room for the least that they need.",
            f"max({SHARED}_waiting_jobs{{{PROGRAM.here}}})",
            steps={1: AMBER},
            height=GRAPH,
        ),
        number(
            "Time of a plan",
            "The mean of the last five minutes.",
            f"sum(rate({SHARED}_plan_seconds_sum{{{PROGRAM.here}}}[5m]))"
            f" / sum(rate({SHARED}_plan_seconds_count{{{PROGRAM.here}}}[5m]))",
            Unit.SECONDS,
            base=BLUE,
            height=GRAPH,
        ),
        graph(
            "Nodes that plans moved",
            "Nodes that plans gave to jobs and took from jobs, within ten minutes.",
            Query(
                f"sum by (direction) (increase({SHARED}_instances_total{{{PROGRAM.here}}}[10m]))",
                "{{direction}}",
            ),
        ),
        graph(
            "Share of its range that each job has",
            "0: the least that it may have, 1: the most.",
            Query(
                f"max by (job_namespace, job_name) ({SHARED}_score{{{PROGRAM.here}}})",
                "{{job_namespace}}/{{job_name}}",
            ),
            unit=Unit.RATIO,
        ),
    ),
)

BOARD: Final = Board(
    "brain",
    "Brain",
    "Whether Brain answers, keeps up with the cluster, and what its plans do.",
    PROGRAM.variables(),
    (NOW, REQUESTS, SHARING, passes(PROGRAM), api(PROGRAM), process(PROGRAM)),
)
