"""The log of a job: one line for each decision that changed something."""

from __future__ import annotations

import logging

from elasticjob.api.sentences import amount
from elasticjob.master.handlers import check as checks
from elasticjob.master.state.condition import Finding, Kind
from elasticjob.master.state.job import End, Job

log = logging.getLogger("elasticjob.master")


def say(before: Job, job: Job) -> None:
    """Log what was decided between two states of the job."""
    known = {_without_count(finding) for finding in before.health.findings}
    for finding in job.health.findings:
        if _without_count(finding) in known or _is_in_this_log(job, finding):
            continue
        if finding.until is None:
            log.warning("%s: %s", finding.reason, finding.message)
        else:
            log.info("%s is over after %.0f s: %s", finding.reason, finding.seconds, finding.about)
    if job.check.findings is not before.check.findings and (sentence := checks.sentence(job)):
        log.info("node check: %s", sentence)
    for name in job.leaving.keys() - before.leaving.keys():
        leaves = job.leaving[name]
        log.info("%s: round %d goes on until it is gone, or %s", leaves.reason, job.round, leaves.until)
    if job.verdict and not before.verdict:
        level = logging.INFO if job.verdict.end is End.SUCCEEDED else logging.ERROR
        log.log(level, "verdict %s, %s: %s", job.verdict.end, job.verdict.reason, job.verdict.message)
    elif job.ending and job.ending != before.ending:
        log.info("round %d ends: %s", job.round, job.ending.reason)
    elif job.running and job.world is not before.world:
        names = ", ".join(member.node for member in job.running.members[:8])
        log.info("round %d: %s on %s", job.running.round, amount(job.running.size, "worker"), names)


def _without_count(finding: Finding) -> Finding:
    return finding.but(count=1, last=None)


def _is_in_this_log(job: Job, finding: Finding) -> bool:
    """Whether the agent says the same: outside of a cluster, a node's log is the master's."""
    return finding.reason is Kind.WORKER_FAILED and job.spec.replicas is None
