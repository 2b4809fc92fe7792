"""Settings of Brain: ELASTICJOB_BRAIN_* in the environment, or flags of `elasticjob brain`."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import AliasChoices, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from elasticjob.brain.fulfilment.planners import Share
from elasticjob.brain.store import Retention


class Source(StrEnum):
    """Where samples of jobs come from, beside what masters tell."""

    MASTERS = "masters"
    PROMETHEUS = "prometheus"
    NONE = "none"


class Settings(BaseSettings):
    """What differs between installations."""

    model_config = SettingsConfigDict(
        env_prefix="ELASTICJOB_BRAIN_", frozen=True, use_attribute_docstrings=True, populate_by_name=True
    )

    database: str = "sqlite:///brain.db"
    """The database: sqlite:///FILE for one replica, postgresql://USER:PASSWORD@HOST/NAME for several."""

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 in a pod."""

    port: int = Field(default=8090, ge=0, le=65535)
    """The port to listen on; 0 for any."""

    key_file: Path | None = None
    """The key of the tokens of masters, which the operator has too; without it masters are refused."""

    reading_token_file: Path | None = None
    """The token with which people read jobs and the page, also as the password of any user; without it
    everybody who reaches the port may read."""

    cluster: bool = True
    """Whether to watch a cluster and to plan for its jobs; without it, masters alone tell of their jobs."""

    kubeconfig: Path | None = None
    """The cluster to work on; without it, KUBECONFIG, ~/.kube/config, or the pod's own service account."""

    context: str | None = None
    """The context of the kubeconfig, if not its current one."""

    namespace: str = ""
    """The only namespace to work in; empty means the whole cluster."""

    probes: str = "127.0.0.1:8082"
    """Where /healthz, /readyz and /metrics are served, as host:port; "": nowhere."""

    source: Source = Source.MASTERS
    """Where samples come from: masters (their /metrics), prometheus, or none (what masters tell)."""

    prometheus: str = ""
    """The URL of the Prometheus server, for the source prometheus."""

    every: float = Field(default=15.0, gt=0)
    """Seconds between two samples of a job, and between two looks at its sizes."""

    share: Share = Share.NONE
    """How to share the cluster among the jobs in cluster mode whose workers have a range: fulfilment,
    goodput, or none. The numbers of their workers are then decided for all jobs at once."""

    settle: float = Field(default=60.0, ge=0)
    """Seconds after a change of its size in which a job does not grow, when the cluster is shared."""

    pace: float = Field(default=1.0, gt=0)
    """The times between two decisions about a job, as a share of the usual ones: less for trials."""

    leader_election: bool = False
    """Whether to be one of several replicas, of which one at a time watches and plans; all of them answer."""

    lease: str = "elasticjob-brain"
    """The name of the Lease that they share."""

    lease_namespace: str = Field(
        default="", validation_alias=AliasChoices("ELASTICJOB_BRAIN_LEASE_NAMESPACE", "POD_NAMESPACE")
    )
    """Where it is; empty means the namespace of the pod, or of the kubeconfig's context."""

    lease_owner: str = ""
    """A Role there, with which the Lease is deleted; empty: it stays."""

    keep_days: float = Field(default=90, gt=0)
    """Days after which a job that has ended, and each sample, is deleted."""

    keep_samples: int = Field(default=500, ge=16)
    """Samples that are kept of each job."""

    @model_validator(mode="after")
    def _has_a_server(self) -> Self:
        if self.source is Source.PROMETHEUS and not self.prometheus:
            raise ValueError("the source prometheus needs a server: give --prometheus URL")
        return self

    @property
    def retention(self) -> Retention:
        """What sweeps leave."""
        return Retention(timedelta(days=self.keep_days), self.keep_samples)
