"""The dashboard of Brain: who asks it, what it decides, its passes, API server, process."""

from __future__ import annotations

from typing import Final

from hack.dashboards.panels import AMBER, BLUE, RED, Board, Query, Row, Unit, choice, graph, number
from hack.dashboards.program import HERE, api, passes, process, quantile, rate, summary

FOUND: Final = 'elasticjob_kube_failed_passes_total{loop="brain-samples"}'
"""A series that each Brain has, and that no other program has."""
ASKED: Final = "elasticjob_brain_request_seconds"
SHARED: Final = "elasticjob_fulfilment"

NOW: Final = summary(
    number(
        "Refused requests",
        "Requests that got an error within five minutes.",
        f'sum(increase({ASKED}_count{{{HERE},code=~"5.."}}[5m])) or vector(0)',
        steps={1: AMBER, 20: RED},
    ),
    number(
        "Failed passes",
        "Passes over a job that failed within five minutes.",
        f"sum(increase(elasticjob_kube_failed_passes_total{{{HERE}}}[5m]))",
        steps={1: AMBER, 20: RED},
    ),
)
REQUESTS: Final = Row(
    "Requests",
    (
        graph(
            "Requests",
            "Of masters and readers in a second, by kind and HTTP code.",
            Query(f"sum by (verb, code) ({rate(f'{ASKED}_count')})", "{{verb}} {{code}}"),
            unit=Unit.PER_SECOND,
        ),
        graph(
            "Time of a request",
            "99 of 100 answers take less, by kind: most of it is the database's.",
            Query(quantile(0.99, ASKED, "verb"), "{{verb}}"),
            unit=Unit.SECONDS,
        ),
        graph(
            "Failed passes",
            "Passes over one job that failed, by loop, in a second.",
            Query(f"sum by (loop) ({rate('elasticjob_kube_failed_passes_total')})", "{{loop}}"),
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
            f"max({SHARED}_waiting_jobs{{{HERE}}})",
            steps={1: AMBER},
            width=4,
        ),
        number(
            "Time of a plan",
            "The mean of the last five minutes.",
            f"sum(rate({SHARED}_plan_seconds_sum{{{HERE}}}[5m]))"
            f" / sum(rate({SHARED}_plan_seconds_count{{{HERE}}}[5m]))",
            Unit.SECONDS,
            base=BLUE,
            width=4,
        ),
        graph(
            "Nodes that plans moved",
            "Nodes that plans gave to jobs and took from jobs, within ten minutes.",
            Query(f"sum by (direction) (increase({SHARED}_instances_total{{{HERE}}}[10m]))", "{{direction}}"),
        ),
        graph(
            "Share of its range that each job has",
            "0: the least that it may have, 1: the most.",
            Query(
                f"max by (exported_namespace, exported_job) ({SHARED}_score{{{HERE}}})",
                "{{exported_namespace}}/{{exported_job}}",
            ),
            unit=Unit.RATIO,
        ),
    ),
)

BOARD: Final = Board(
    "brain",
    "Brain",
    "Whether Brain answers, keeps up with the cluster, and what its plans do.",
    (
        choice("namespace", "Namespace", f"label_values({FOUND}, namespace)", several=True),
        choice(
            "job",
            "Scrape job",
            f'label_values({FOUND.replace("}", ",")}namespace=~"$namespace"}}, job)',
            several=True,
        ),
    ),
    (NOW, REQUESTS, SHARING, passes(), api(), process()),
)
