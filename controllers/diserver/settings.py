"""Settings of di-server: ELASTICJOB_DI_SERVER_* in the environment, or flags of `elasticjob di-server`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What differs between installations."""

    model_config = SettingsConfigDict(
        env_prefix="ELASTICJOB_DI_SERVER_", frozen=True, use_attribute_docstrings=True, populate_by_name=True
    )

    host: str = "127.0.0.1"
    """The address to listen on; 0.0.0.0 in a pod."""

    port: int = Field(default=8080, ge=0, le=65535)
    """The port to listen on; 0 for any."""

    kubeconfig: Path | None = None
    """The cluster to work on; without it, KUBECONFIG, ~/.kube/config, or the pod's own service account."""

    context: str | None = None
    """The context of the kubeconfig, if not its current one."""

    namespace: str = ""
    """The only namespace to work in; empty means the whole cluster."""

    url: str = "http://di-server.di-system:8080"
    """The URL of di-server that new pods are told; the operator's setting di_server says the same."""

    api_version: str = ""
    """The path prefix that new pods are told, such as /v1alpha2; empty leaves it to them."""

    key_file: Path | None = None
    """The key of the tokens of jobs, which the operator has too; without it everybody who reaches the port
    may call for any job."""

    agconfig_namespace: str = "di-system"
    """Where the AggregatorConfig of the cluster is."""

    agconfig_name: str = "aggregator-config"
    """Its name; one of this name in a job's own namespace wins over it."""

    most_per_request: int = Field(default=256, ge=1)
    """Pods that one call may ask for, of collectors and of learners each; aggregators and ddp pods count."""

    most_per_job: int = Field(default=2048, ge=1)
    """Pods that a job may have beside its coordinator; aggregators and ddp pods count."""

    most_gpus: int = Field(default=1024, ge=1, le=8192)
    """GPUs that a replica may ask for."""

    local_ports: bool = False
    """Whether ddp pods after the first listen at the ports that their addresses name: DI-engine 0.5.3 adds
    the global rank to LEARNER_PORT, so theirs is lowered by the ranks before them."""
