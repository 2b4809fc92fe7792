"""Settings of the operator: ELASTICJOB_OPERATOR_* in the environment, or flags of `elasticjob operator`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from elasticjob import __version__
from elasticjob.api.core.shape import shape_problems, unknown_fields

POD: Final = "io.k8s.api.core.v1.PodSpec"
PLACING: Final = frozenset(
    {
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "runtimeClassName",
        "schedulerName",
        "securityContext",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""What an installation may say about the pods of masters; the operator writes the rest."""


def _in_a_namespace(value: str) -> str:
    if value and not all(value.partition("/")):
        raise ValueError(f"{value!r} is not of the form namespace/name")
    return value


def _with_a_port(value: str) -> str:
    if value and not value.rpartition(":")[2].isdecimal():
        raise ValueError(f"{value!r} is not of the form host:port")
    return value


def _list(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    raise ValueError("these are the labels of one group of namespaces: write a list of such, [{…}]")


def _places_pods(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check fields of a pod. Raises ValueError with the field and the advice."""
    if others := sorted(value.keys() - PLACING):
        raise ValueError(f"{others[0]} is not one of {', '.join(sorted(PLACING))}")
    return _shape("", dict(value), POD)


def _secures(value: Mapping[str, Any]) -> Mapping[str, Any]:
    return _shape("", dict(value), "io.k8s.api.core.v1.SecurityContext")


def _shape(path: str, value: Mapping[str, Any], type_name: str) -> Mapping[str, Any]:
    for problem in (*unknown_fields(path, value, type_name), *shape_problems(path, value, type_name)):
        raise ValueError(str(problem).removeprefix("."))
    return value


Named = Annotated[str, AfterValidator(_in_a_namespace)]
Address = Annotated[str, AfterValidator(_with_a_port)]
Placing = Annotated[Mapping[str, Any], AfterValidator(_places_pods)]
Security = Annotated[Mapping[str, Any], AfterValidator(_secures)]


class Settings(BaseSettings):
    """What differs between installations; the defaults suit an operator in its own pod."""

    model_config = SettingsConfigDict(
        env_prefix="ELASTICJOB_OPERATOR_", frozen=True, use_attribute_docstrings=True, populate_by_name=True
    )

    kubeconfig: Path | None = None
    """The cluster to work on; without it, KUBECONFIG, ~/.kube/config, or the pod's own service account."""

    context: str | None = None
    """The context of the kubeconfig, if not its current one."""

    namespace: str = ""
    """The only namespace to work in; empty means the whole cluster."""

    trainer_image: str = f"elasticjob/trainer:{__version__}"
    """The image of masters whose job names none."""

    trainer_pull_policy: str = ""
    """The imagePullPolicy of such masters; empty leaves it to the cluster."""

    master_cpu: str = "100m"
    """Processor time that such masters ask for."""

    master_memory: str = "128Mi"
    """Memory that such masters ask for."""

    master_pod: Placing = {}
    """Fields of the pods of masters whose job gives none of its own, as JSON: imagePullSecrets, tolerations,
    nodeSelector, affinity, securityContext and so on. In securityContext, null takes one of ours away, as for
    clusters that choose the user ID themselves."""

    master_security_context: Security = {}
    """The same for the securityContext of the container of such masters."""

    job_log_format: Literal["", "people", "json"] = ""
    """ELASTICJOB_LOG_FORMAT of the pods of jobs, unless the job sets it; empty leaves it away."""

    scrapers: Annotated[tuple[Mapping[str, str], ...], BeforeValidator(_list)] = ()
    """Whose pods may read the metrics of masters: a list of the labels of namespaces, as JSON."""

    brain: Address = ""
    """Brain's address as host:port, for jobs in cluster mode; without it, their masters decide alone."""

    brain_namespace: str = ""
    """Brain's namespace, whose pods may read the metrics of masters whatever scrapers says."""

    brain_key_file: Path | None = None
    """The key of the tokens with which masters ask Brain; Brain has the same."""

    di_server: str = "http://di-server.di-system:8080"
    """The URL of di-server, which pods of DIJobs are told."""

    di_server_version: str = ""
    """The path prefix that they are told, such as /v1alpha2; empty leaves it to them."""

    di_server_key_file: Path | None = None
    """The key of the tokens with which they call di-server, which has the same; without it, see the next."""

    di_server_tokens: bool = False
    """Whether tokens are made without such a file too, by the key that the operator draws once: `key` of the
    Secret <lease>-keys in the namespace of the lease, which di-server mounts."""

    di_graceful: bool = False
    """Whether pods of DIJobs that have ended get their own grace period, and not none."""

    ending_taints: tuple[str, ...] = ()
    """Keys of more taints, as JSON, of machines that end within minutes: pods leave them at once."""

    gang_scheduler: str = ""
    """The schedulerName of pods in gangs of scheduler-plugins whose template has none; empty where its plugin
    Coscheduling is part of the default scheduler."""

    gives_back: bool = True
    """Whether jobs in Kueue's queues give back nodes beyond their minimum for other Workloads that wait,
    where Kueue itself does not preempt them."""

    concurrency: int = Field(default=8, ge=1)
    """Objects of each kind that are worked on at the same time."""

    probes: Address = "127.0.0.1:8081"
    """Where /healthz, /readyz and /metrics are served, as host:port: 0.0.0.0:8081 in a pod; "": nowhere."""

    webhooks: bool = True
    """Whether to serve admission webhooks."""

    webhook_host: str = "127.0.0.1"
    """The address that admission webhooks listen on; 0.0.0.0 in a pod."""

    webhook_port: int = 9443
    """The port that admission webhooks listen on; 0 for any."""

    webhook_address: str = ""
    """The host, or host:port, under which the API server reaches them by URL; empty means webhook_host."""

    webhook_service: Named = ""
    """namespace/name of the Service through which the API server reaches them; empty means by URL."""

    webhook_certificates: str = ""
    """A folder with tls.crt and tls.key that somebody else keeps (a mounted Secret of cert-manager); empty
    means that we issue them, of an authority in a Secret that replicas share."""

    webhook_inject_from: Named = ""
    """namespace/name of the Certificate whose authority cert-manager is to have the API server trust."""

    webhook_owner: str = ""
    """A ClusterRole of the installation, with which the registered webhooks are deleted; empty: they stay."""

    webhook_failure_policy: Literal["Fail", "Ignore"] = "Fail"
    """Whether writes are refused or admitted unchecked while no operator answers."""

    webhook_timeout: int = Field(default=10, ge=1, le=30)
    """Seconds that the API server waits for an answer."""

    leader_election: bool = False
    """Whether to be one of several replicas, of which one at a time runs the controllers.

    They all serve webhooks behind webhook_service; as plain processes, each would register its own address:
    let one of them do so, and turn webhooks off for the others.
    """

    lease: str = "elasticjob-operator"
    """The name of the Lease that they share."""

    lease_namespace: str = Field(
        default="", validation_alias=AliasChoices("ELASTICJOB_OPERATOR_LEASE_NAMESPACE", "POD_NAMESPACE")
    )
    """Where it is; empty means the namespace of the pod, or of the kubeconfig's context."""

    lease_owner: str = ""
    """A Role there, with which the Lease and the webhooks' authority are deleted; empty: they stay."""

    install: bool = False
    """Whether to apply the CRDs first; webhooks are always registered by the operator that serves them."""
