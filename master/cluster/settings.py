"""Settings of a master: environment variables of its pod, or flags of `elasticjob master`.

Two underscores follow the prefix because a job called `elasticjob` has a Service `elasticjob-master`, for
which Kubernetes sets ELASTICJOB_MASTER_PORT in every pod of the namespace. The name of no Service ends with a
dash, so that none sets a variable of ours.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from elasticjob.api.rpc import environment as env
from elasticjob.api.sizes.role import Range
from elasticjob.master.state.job import Limits, Spec, Waits
from elasticjob.sizing.facts import Pace


def _field(name: str, default: Any) -> Any:
    """Return a field that is set by the environment variable `name`, or by its own name."""
    return Field(default=default, validation_alias=AliasChoices(name, name.lower()))


def _seconds(value: Any) -> Any:
    """Return a plain number as seconds; leaves anything else to Pydantic (ISO 8601)."""
    return float(value) if isinstance(value, str) and value.replace(".", "", 1).isdecimal() else value


Seconds = Annotated[timedelta, BeforeValidator(_seconds)]


class Settings(BaseSettings):
    """Settings of a master process. In a cluster, the size of the job comes from its ElasticJob."""

    model_config = SettingsConfigDict(
        env_prefix="ELASTICJOB_MASTER__", frozen=True, populate_by_name=True, use_attribute_docstrings=True
    )

    job: str = _field(env.JOB, "local")
    """The name of the job."""

    namespace: str = _field(env.NAMESPACE, "")
    """Its namespace; empty outside of a cluster."""

    pod: str = _field(env.POD_NAME, "")
    """The master's own pod; a master whose pod is gone from the API server ends."""

    host: str = _field(env.POD_IP, "127.0.0.1")
    """The address to listen on."""

    port: int = env.MASTER_PORT
    """The port to listen on; 0 for any."""

    token_file: Path | None = _field(env.TOKEN_FILE, None)
    """The file with the job's bearer token; without it a new token is made and printed."""

    termination_log: Path | None = _field(env.TERMINATION_LOG, None)
    """The file for the termination message, as JSON."""

    kubeconfig: Path | None = None
    """The cluster of the job; without it, KUBECONFIG or the pod's own service account."""

    state: Path | None = None
    """Outside of a cluster: the file that keeps the job's state across restarts of its master."""

    nodes_min: int = Field(default=1, ge=1)
    """Outside of a cluster: the smallest number of nodes that train."""

    nodes_max: int = Field(default=1, ge=1)
    """Outside of a cluster: the largest number of nodes that train."""

    node_unit: int = Field(default=1, ge=1)
    """Outside of a cluster: the number of training nodes is a multiple of this."""

    silence: Seconds = Limits().silence
    """Heartbeat timeout after which a node is lost (seconds, like the next four)."""

    last_call: Seconds = Limits().last_call
    """How long after the last join missing nodes are waited for."""

    join_timeout: Seconds = Limits().join_timeout
    """How long the job may be without a world before it fails."""

    hang: Seconds = Limits().hang
    """How long, beyond three usual steps, others wait for a worker that is stopped, or that does nothing in
    its step, before it is killed (seconds; 0: for ever, whatever a worker does)."""

    hang_reading: Seconds = Waits().reading
    """How long others wait for a worker that waits for its records or for storage (seconds; 0: for ever)."""

    hang_computing: Seconds = Waits().computing
    """The same for one that uses its processor in its step: it compiles."""

    hang_first: Seconds = Waits().first
    """The same for one that neither computes nor reads before its first step in a world."""

    hang_outside: Seconds = Waits().outside
    """The same for one that neither computes nor reads between two steps: it evaluates, saves."""

    hang_collective: Seconds = Waits().collective
    """How long, beyond ten usual steps, all may wait for each other before the youngest is killed."""

    idle: Seconds = Limits().idle
    """How long no node may compute (with no step for a quarter of it) before the job fails; 0 for ever."""

    quiet: Seconds = Limits().quiet
    """How long after the last newcomer a world of plain scripts is restarted for it."""

    longest_quiet: Seconds = Limits().longest_quiet
    """The same after the first newcomer, however many follow."""

    brain: str = ""
    """Brain's address as host:port, for jobs in cluster mode that do not name one."""

    brain_token_file: Path | None = None
    """The file with the bearer token for Brain; it is read for each call."""

    pace: float = Field(default=1.0, gt=0)
    """The times between two looks at the size of the job, as a share of the usual ones: less for trials."""

    @property
    def limits(self) -> Limits:
        """The timeouts of the job."""
        return Limits(
            silence=self.silence,
            last_call=self.last_call,
            join_timeout=self.join_timeout,
            hang=self.hang,
            waits=Waits(
                reading=self.hang_reading,
                computing=self.hang_computing,
                first=self.hang_first,
                outside=self.hang_outside,
                collective=self.hang_collective,
            ),
            idle=self.idle,
            quiet=self.quiet,
            longest_quiet=self.longest_quiet,
            pace=Pace().times(self.pace),
        )

    @property
    def spec(self) -> Spec:
        """The job's spec outside of a cluster."""
        bounds = Range(least=self.nodes_min, most=self.nodes_max, unit=self.node_unit)
        return Spec(job=self.job, bounds=bounds, limits=self.limits)
