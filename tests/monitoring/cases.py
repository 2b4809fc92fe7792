"""Each alert in its three forms: it fires, it is resolved, it is silent though something like it happens.

Values are written as promtool does, one a minute, or each `every` minutes, from 0 on; so timestamps are
seconds since then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Series = Mapping[str, str]


@dataclass(frozen=True)
class Case:
    """With `series` the alert fires after `fires` minutes with these labels, and is over after `resolved`.

    With `silent` it never fires. `says` is its description.
    """

    alert: str
    series: Series
    fires: int
    resolved: int
    says: str
    silent: Series
    every: int = 1
    labels: Mapping[str, str] = field(default_factory=lambda: {"namespace": "lab", "job": "digits"})


def operator(name: str, /, **labels: str) -> str:
    """Return a series of the operator."""
    return series(name, component="elasticjob-operator", namespace="elasticjob-system", **labels)


def job(name: str, /, **labels: str) -> str:
    """Return a series of the operator about the job."""
    return operator(name, job_namespace="lab", job_name="digits", **labels)


def master(name: str, /, pod: str = "digits-master-0", **labels: str) -> str:
    """Return a series of the job's master."""
    return series(name, component="elasticjob-master", namespace="lab", job="digits", pod=pod, **labels)


def brain(name: str, /, **labels: str) -> str:
    """Return a series of Brain."""
    return series(name, component="elasticjob-brain", **labels)


def dijobs(phase: str) -> str:
    """Return the operator's number of DIJobs in a phase."""
    return operator("elasticjob_dijobs", job_namespace="lab", phase=phase)


def di_server(name: str, /, **labels: str) -> str:
    """Return a series of di-server."""
    return series(name, component="elasticjob-di-server", **labels)


def series(name: str, /, **labels: str) -> str:
    """Return the name of a series."""
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "}"


def up(component: str, pod: str = "a") -> str:
    """Return the series that tells whether a program can be scraped."""
    return series("up", component=f"elasticjob-{component}", pod=pod)


def failed_jobs() -> str:
    """Return the operator's counter of failed jobs."""
    return operator("training_operator_jobs_failed_total", job_namespace="lab", framework="pytorch")


def runs(result: str) -> str:
    """Return the counter of a controller's runs with some result."""
    return operator("controller_runtime_reconcile_total", controller="elasticjob", result=result)


def reviews(code: str) -> str:
    """Return the counter of a webhook's answers with some code."""
    return operator("controller_runtime_webhook_requests_total", webhook="/validate", code=code)


PHASE: Final = "elasticjob_job_phase_timestamp_seconds"
STEP: Final = "elasticjob_last_step_timestamp_seconds"
USUAL: Final = "elasticjob_usual_step_seconds"
ERRORS: Final = operator("controller_runtime_reconcile_errors_total", controller="elasticjob")
LOST: Final = master("elasticjob_badput_seconds_total", cause="pull")
PRODUCTIVE: Final = master("elasticjob_productive_seconds_total")
TRAINS: Final = master("elasticjob_nodes", state="training")
WORLD: Final = master("elasticjob_world_size")
DIGITS: Final = "ElasticJob lab/digits"

CASES: Final = (
    Case(
        "ElasticJobPending",
        {
            job(PHASE, phase="Pending"): "0x20 stale",
            job(PHASE, phase="Running"): "_x20 1200x20",
            job("elasticjob_job_trouble", cause="VolumeMissing", title="a claim is missing"): "1x20 stale",
        },
        fires=18,
        resolved=23,
        labels={"namespace": "lab", "job": "digits", "phase": "Pending"},
        says=f"{DIGITS} has been Pending for 18m 0s. VolumeMissing: a claim is missing.",
        silent={
            job(PHASE, phase="Restarting"): "0x60",
            WORLD: "3x60",  # it trains with the nodes that it has
            job(PHASE, phase="Running", job="other"): "0x60",
            job(PHASE, phase="Suspended", job="third"): "0x60",
        },
    ),
    Case(
        "ElasticJobFailed",
        {job(PHASE, phase="Failed"): "300x90"},
        fires=10,
        resolved=70,
        labels={"namespace": "lab", "job": "digits", "phase": "Failed"},
        says=f"{DIGITS} failed 5m 0s ago.",
        silent={job(PHASE, phase="Succeeded"): "300x90"},
    ),
    Case(
        "ElasticJobFailsRepeatedly",
        {failed_jobs(): "0+1x3 3x90"},
        fires=10,
        resolved=80,
        labels={"namespace": "lab"},
        says="3 ElasticJobs of namespace lab have failed within the last hour.",
        silent={
            failed_jobs(): "0 1 2x90",
            series("training_operator_jobs_failed_total", job_namespace="lab", job="kubeflow"): "0+1x9 9x90",
        },
    ),
    Case(
        "ElasticJobRestartsBurn",
        {
            master("elasticjob_restarts_left"): "3x40",
            master("elasticjob_restarts_allowed"): "3x40",
            job("elasticjob_job_restarts_left"): "3x5 1x10 3x20",  # of pods
            job("elasticjob_job_restarts_allowed"): "3x40",
        },
        fires=10,
        resolved=20,
        says=f"A node of {DIGITS} may fail 1 more times before it is not replaced any more.",
        silent={
            master("elasticjob_restarts_left"): "3x5 2x40",
            master("elasticjob_restarts_allowed"): "3x50",
        },
    ),
    Case(
        "ElasticJobRestartsSpent",
        {
            master("elasticjob_restarts_left"): "1x5 0x10 3x20",
            master("elasticjob_restarts_allowed"): "3x40",
        },
        fires=10,
        resolved=20,
        says=f"A node of {DIGITS} is not replaced after its next failure, with which the job may fail.",
        silent={master("elasticjob_restarts_left"): "0x50", master("elasticjob_restarts_allowed"): "0x50"},
    ),
    Case(
        "ElasticJobMemoryCeiling",
        {job("elasticjob_job_memory_ceiling_timestamp_seconds", role="worker"): "_x5 300x60"},
        fires=10,
        resolved=40,
        labels={"namespace": "lab", "job": "digits", "role": "worker"},
        says=f"A node of role worker of {DIGITS} was killed for lack of memory 5m 0s ago, "
        "and has the most that it may get.",
        silent={job("elasticjob_job_memory_ceiling_timestamp_seconds", role="worker"): "-1800x60"},
    ),
    Case(
        "ElasticJobPlansFail",
        {job("elasticjob_plans_total", outcome="Failed"): "0+1x3 3x90"},
        fires=10,
        resolved=80,
        says=f"3 ScalePlans of {DIGITS} have failed within the last hour.",
        silent={
            job("elasticjob_plans_total", outcome="Failed"): "0 1 2x90",
            job("elasticjob_plans_total", outcome="Superseded"): "0+1x90",
        },
    ),
    Case(
        "ElasticJobMasterUnreachable",
        {job("elasticjob_job_master_ready"): "1x5 0x10 1x20"},
        fires=12,
        resolved=20,
        says=f"The master of {DIGITS} is not ready, or Prometheus cannot read its metrics. "
        "Without it the job replaces no lost node.",
        silent={job("elasticjob_job_master_ready"): "1x5 0x3 1x40", up("master"): "1x40"},
    ),
    Case(
        "ElasticJobMasterUnreachable",
        {job("elasticjob_job_master_ready"): "1x40", master("up"): "1x5 0x10 1x20"},
        fires=12,
        resolved=20,
        says=f"The master of {DIGITS} is not ready, or Prometheus cannot read its metrics. "
        "Without it the job replaces no lost node.",
        silent={job(PHASE, phase="Pending"): "0x60", master("up"): "_x2 0x60"},  # its image is pulled
    ),
    Case(
        "ElasticJobHangs",
        {master(STEP): "0+60x10 600x20 1860+60x20", master(USUAL): "30x60", TRAINS: "2x60"},
        fires=30,
        resolved=40,
        says=f"{DIGITS} has made no step for 20m 0s, more than 30 usual ones.",
        silent={master(STEP): "0+60x10 600x14 1500+60x40", master(USUAL): "30x80", TRAINS: "2x80"},
    ),
    Case(  # an evaluation of its own is no hang
        "ElasticJobHangs",
        {master(STEP): "0x30 1860+60x20", master("elasticjob_hanging"): "1x40", TRAINS: "2x60"},
        fires=20,
        resolved=40,
        says=f"{DIGITS} has made no step for 20m 0s, more than 30 usual ones.",
        silent={
            master(STEP): "0x60",
            master(USUAL): "1x60",
            master("elasticjob_workers", doing="outside"): "2x60",
            TRAINS: "2x60",
        },
    ),
    Case(  # nor is a job whose nodes were preempted, and wait for machines
        "ElasticJobHangs",
        {
            master(STEP): "0x30 1860+60x20",
            TRAINS: "1x60",
            master("elasticjob_nodes", state="pending"): "1x60",
        },
        fires=20,
        resolved=40,
        says=f"{DIGITS} has made no step for 20m 0s, more than 30 usual ones.",
        silent={
            master(STEP): "0x60",
            TRAINS: "2x5 stale",
            master("elasticjob_nodes", state="pending"): "2x60",
        },
    ),
    Case(
        "ElasticJobWaitsForPeers",
        {master("elasticjob_nodes", state="waiting"): "2x20 0x20", WORLD: "0x20 4x20"},
        fires=18,
        resolved=25,
        says=f"2 nodes of {DIGITS} wait for others, and none trains.",
        silent={master("elasticjob_nodes", state="waiting"): "1x60", WORLD: "4x60"},
    ),
    Case(
        "ElasticJobStraggler",
        {master("elasticjob_stragglers"): "0x5 2x15 0x20"},
        fires=18,
        resolved=25,
        says=f"2 workers of {DIGITS} are slow, and all others wait for them in each step.",
        silent={master("elasticjob_stragglers"): "0x5 1x5 0x40"},
    ),
    Case(
        "ElasticJobGoodputBurnsFast",
        {LOST: "0+45x60 2700+5x60", PRODUCTIVE: "0+15x60 900+55x60"},
        fires=60,
        resolved=75,
        says=f"{DIGITS} has lost 75% of its workers' time within the last hour.",
        silent={
            LOST: "0+60x20 1200+5x90",  # a slow start
            PRODUCTIVE: "0x20 0+55x90",
            master("elasticjob_badput_seconds_total", cause="schedule"): "0+180x110",  # and missing machines
        },
    ),
    Case(
        "ElasticJobGoodputBurnsSlowly",
        {LOST: "0+75x80 6000+5x20", PRODUCTIVE: "0+225x80 18000+295x20"},
        every=5,
        fires=400,
        resolved=440,
        says=f"{DIGITS} has lost 25% of its workers' time within the last six hours.",
        silent={LOST: "0+300x6 1800+45x90", PRODUCTIVE: "0x6 0+255x90"},  # the same
    ),
    Case(
        "ElasticJobCheckpointFails",
        {master("elasticjob_checkpoint_failing"): "0x5 1x15 0x20"},
        fires=15,
        resolved=25,
        says=f"The last checkpoint of {DIGITS} is not in storage.",
        silent={master("elasticjob_checkpoint_failing"): "0x5 1x3 0x40"},
    ),
    Case(
        "ElasticJobCheckpointOld",
        {master("elasticjob_checkpoint_timestamp_seconds"): "0x130 7800+60x30", WORLD: "4x160"},
        fires=130,
        resolved=140,
        says=f"The newest checkpoint of {DIGITS} is 2h 10m 0s old: so much training may be lost.",
        silent={master("elasticjob_checkpoint_timestamp_seconds"): "0x160", WORLD: "4x60 0x100"},
    ),
    Case(
        "ElasticJobStateUnsaved",
        {master("elasticjob_snapshot_unsaved_seconds"): "0+60x15 0x20"},
        fires=12,
        resolved=20,
        says=f"The master of {DIGITS} has not saved the job's state for 12m 0s: "
        "the next master would lack it.",
        silent={master("elasticjob_snapshot_unsaved_seconds"): "0+60x5 0x40"},
    ),
    Case(
        "ElasticJobMasterErrors",
        {master("elasticjob_failed_passes_total", loop="timeouts"): "0x5 2x60"},
        fires=15,
        resolved=45,
        labels={"namespace": "lab", "job": "digits", "loop": "timeouts"},
        says=f"The loop timeouts of the master of {DIGITS} has met 2 unexpected errors within 30 minutes.",
        silent={master("elasticjob_failed_passes_total", loop="timeouts"): "2x60"},
    ),
    Case(
        "ElasticJobOperatorDown",
        {up("operator"): "1x5 0x10 1x20", up("brain"): "1x40"},
        fires=12,
        resolved=20,
        labels={},
        says="Prometheus reaches no replica of the operator: no job is begun, changed or ended, "
        "and new ones may be refused. Trainings go on.",
        silent={up("operator"): "1x5 0x40", up("operator", "b"): "1x50"},
    ),
    Case(
        "ElasticJobOperatorNoLeader",
        {
            operator("leader_election_master_status", name="lease", pod="a"): "1x5 0x20",
            operator("leader_election_master_status", name="lease", pod="b"): "0x10 1x15",
            series(
                "leader_election_master_status",
                name="lease",
                component="elasticjob-operator",
                namespace="that-of-another-team",
            ): "1x30",
        },
        fires=9,
        resolved=15,
        labels={"namespace": "elasticjob-system", "name": "lease"},
        says="No replica of the operator has held the lease elasticjob-system/lease for 2 minutes: "
        "no job is begun, changed or ended.",
        silent={
            operator("leader_election_master_status", name="lease", pod="a"): "1x5 0x20",
            operator("leader_election_master_status", name="lease", pod="b"): "0x6 1x20",
            series("leader_election_master_status", name="another", component="another"): "0x30",
        },
    ),
    Case(
        "ElasticJobReconcileErrors",
        {
            ERRORS: "0+3x40 120x40",
            runs("error"): "0+3x40 120x40",
            runs("success"): "0+9x80",
        },
        fires=30,
        resolved=60,
        labels={"component": "elasticjob-operator", "controller": "elasticjob"},
        says="25% of the runs of the controller elasticjob of elasticjob-operator fail.",
        silent={
            ERRORS: "0+1x80",
            runs("error"): "0+1x80",
            runs("success"): "0+19x80",
            series("controller_runtime_reconcile_errors_total", controller="another"): "0+9x80",
            series("controller_runtime_reconcile_total", controller="another", result="error"): "0+9x80",
        },
    ),
    Case(
        "ElasticJobPassErrors",
        {operator("elasticjob_kube_failed_passes_total", loop="gangs"): "0+1x30 30x60"},
        fires=30,
        resolved=70,
        labels={"component": "elasticjob-operator", "loop": "gangs"},
        says="The loop gangs of elasticjob-operator has failed 30 times within 30 minutes.",
        silent={operator("elasticjob_kube_failed_passes_total", loop="gangs"): "0 1 2x60"},
    ),
    Case(
        "ElasticJobQueueBacklog",
        {operator("workqueue_depth", name="elasticjob", priority="0"): "0x5 150x20 3x20"},
        fires=22,
        resolved=30,
        labels={"component": "elasticjob-operator", "name": "elasticjob"},
        says="150 objects wait in the queue of the controller elasticjob of elasticjob-operator.",
        silent={operator("workqueue_depth", name="elasticjob", priority="0"): "0x5 150x10 3x40"},
    ),
    Case(
        "ElasticJobReconcileStuck",
        {operator("workqueue_longest_running_processor_seconds", name="elasticjob"): "0+60x20 0x20"},
        fires=18,
        resolved=25,
        labels={"component": "elasticjob-operator", "name": "elasticjob"},
        says="A run of the controller elasticjob of elasticjob-operator has gone on for 18m 0s.",
        silent={operator("workqueue_longest_running_processor_seconds", name="elasticjob"): "0+60x9 0x40"},
    ),
    Case(
        "ElasticJobCacheStale",
        {operator("elasticjob_kube_cache_staleness_seconds", kind="Pod"): "0+60x20 0x20"},
        fires=18,
        resolved=25,
        labels={"component": "elasticjob-operator", "kind": "Pod"},
        says="elasticjob-operator has heard nothing about Pod objects from the API server for 18m 0s, "
        "and decides by what it knew then.",
        silent={operator("elasticjob_kube_cache_staleness_seconds", kind="Pod"): "0+60x9 0x40"},
    ),
    Case(
        "ElasticJobWebhookErrors",
        {
            reviews("500"): "0+1x20 20x40",
            reviews("200"): "0+9x60",
        },
        fires=20,
        resolved=30,
        labels={"webhook": "/validate"},
        says="10% of the requests to the webhook /validate fail: users cannot create or change objects.",
        silent={
            reviews("403"): "0+9x60",
            reviews("200"): "0+1x60",
        },
    ),
    Case(
        "ElasticJobWebhookCertificateExpires",
        {
            operator(
                "elasticjob_kube_webhook_certificate_expiry_timestamp_seconds", configuration="elasticjob"
            ): "45000x20 604800x20"
        },
        fires=15,
        resolved=25,
        labels={"configuration": "elasticjob"},
        says="The certificate of the webhooks elasticjob expires in 12h 15m 0s and was not renewed: "
        "then no object can be created or changed.",
        silent={
            operator(
                "elasticjob_kube_webhook_certificate_expiry_timestamp_seconds", configuration="elasticjob"
            ): "604800x60"
        },
    ),
    Case(
        "ElasticJobBrainDown",
        {operator("elasticjob_operator_uses_brain"): "1x40", up("brain"): "1x5 stale _x9 1x20"},
        fires=14,
        resolved=20,
        labels={},
        says="Prometheus reaches no replica of Brain. "
        "Jobs train on, and their masters decide sizes by themselves.",
        silent={operator("elasticjob_operator_uses_brain"): "0x40"},
    ),
    Case(
        "ElasticJobBrainDatabaseFails",
        {brain("elasticjob_brain_database_errors_total"): "0+2x20 40x30"},
        fires=15,
        resolved=30,
        labels={},
        says="The database has failed 10 of Brain's transactions within 5 minutes: no history is kept, "
        "and masters decide sizes by themselves.",
        silent={brain("elasticjob_brain_database_errors_total"): "7x60"},
    ),
    Case(
        "ElasticJobBrainErrors",
        {
            brain("elasticjob_brain_request_seconds_count", verb="tell", code="500"): "0+1x30 30x60",
            brain("elasticjob_brain_request_seconds_count", verb="tell", code="200"): "0+9x90",
        },
        fires=25,
        resolved=50,
        labels={},
        says="Brain answers 10% of its requests with an error of its own.",
        silent={
            brain("elasticjob_brain_request_seconds_count", verb="tell", code="401"): "0+9x90",
            brain("elasticjob_brain_request_seconds_count", verb="tell", code="200"): "0+9x90",
        },
    ),
    Case(
        "ElasticJobDIServerDown",
        {dijobs("Running"): "1x40", dijobs("Failed"): "3x40", up("di-server"): "1x5 0x9 1x20"},
        fires=14,
        resolved=20,
        labels={},
        says="Prometheus reaches no replica of di-server: "
        "coordinators of DIJobs get no collectors and learners.",
        silent={dijobs("Running"): "1x3 0x40", dijobs("Succeeded"): "2x3 3x40", dijobs("Failed"): "1x40"},
    ),
    Case(
        "ElasticJobDIServerErrors",
        {
            di_server("elasticjob_di_server_failed_calls_total", reason="cluster"): "0+1x30 30x60",
            di_server("elasticjob_di_server_request_seconds_count", call="post", code="200"): "0+5x90",
        },
        fires=25,
        resolved=50,
        labels={},
        says="20% of the calls to di-server fail: "
        "coordinators of DIJobs wait for their collectors and learners.",
        silent={
            di_server("elasticjob_di_server_failed_calls_total", reason="cluster"): "3x90",
            di_server("elasticjob_di_server_request_seconds_count", call="post", code="400"): "0+5x90",
        },
    ),
)
