"""The operator as a process: caches, controllers, webhooks and counters, put together and run."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from elasticjob.api.diengine.dijob import DIJOB, DIJob
from elasticjob.api.diengine.pods import Server
from elasticjob.api.paddle.trainingjob import TRAININGJOB, TrainingJob
from elasticjob.api.v1alpha1.common import KEYS_SUFFIX
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.dijob import controller as dijobs
from elasticjob.controllers.dijob.seen import Caches as DIJobCaches
from elasticjob.controllers.elasticjob import controller as jobs
from elasticjob.controllers.elasticjob.master import Provision, master_pod
from elasticjob.controllers.install import install
from elasticjob.controllers.jobresource import controller as nodes
from elasticjob.controllers.jobresource.room import Rooms
from elasticjob.controllers.keys import Keys
from elasticjob.controllers.kueue import controller as queue
from elasticjob.controllers.kueue.admission import Admission
from elasticjob.controllers.kueue.kinds import KINDS, Sources
from elasticjob.controllers.kueue.presence import stays
from elasticjob.controllers.kueue.queues import Queues
from elasticjob.controllers.kueue.workload import CLUSTER_QUEUE, COHORT, FLAVOR, LOCAL_QUEUE, WORKLOAD
from elasticjob.controllers.metrics import Counters
from elasticjob.controllers.nodes.relaunch import Node
from elasticjob.controllers.parts.gangs.served import GangApis
from elasticjob.controllers.parts.names import MASTER
from elasticjob.controllers.passes.apply import Applier
from elasticjob.controllers.passes.many_starts import Rush
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.orphans import Orphans
from elasticjob.controllers.scaleplan import controller as plans
from elasticjob.controllers.settings import Settings
from elasticjob.controllers.trainingjob import controller as trainings
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.controller import Controller
from elasticjob.kube.election.election import Election
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.owner import Owner
from elasticjob.kube.objects.views import CLUSTER_ROLE, NODE, POD, ROLE, SERVICE
from elasticjob.kube.operator.operator import Group, Operator
from elasticjob.kube.webhook.review import Webhook
from elasticjob.kube.webhook.server import ServiceRef, WebhookServer
from elasticjob.webhooks import WEBHOOKS, scale
from elasticjob.webhooks.elasticjob import WITHOUT_BRAIN
from elasticjob.webhooks.scale import Writer

NAME: Final = "elasticjob-operator"
WEBHOOK_CONFIGURATION: Final = "elasticjob"
NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
"""The cluster gives it to each namespace."""
TOKEN_BYTES: Final = 32


async def run(settings: Settings) -> None:
    """Run the operator until SIGTERM, SIGINT or cancellation.

    Raises LeadershipLost when another replica may lead: the process must end at once.
    """
    found = await config.load(settings.kubeconfig, settings.context)
    async with Client(found, user_agent=NAME) as client:
        if settings.install:
            await install(client)
        operator = compose(client, settings)
        gc.freeze()  # imported modules stay: without this, full collections double the stall of a first list
        await operator.run()


def compose(client: Client, settings: Settings, *, signals: bool = True) -> Operator:
    """Return the whole operator, not started; without `signals`, the caller handles SIGTERM."""
    election = (
        Election(settings.lease, settings.lease_namespace, owner=_lease_owner(settings))
        if settings.leader_election
        else None
    )
    operator = Operator(
        client, settings.namespace, name=NAME, probes=settings.probes, signals=signals, election=election
    )
    if settings.webhooks:
        operator.add(_admission(operator, settings))
    caches = _caches(operator, settings)
    counters = Counters(operator.metrics.registry)
    counters.uses_brain(bool(settings.brain))
    now = operator.clock.now

    def applier(manager: str) -> Applier:
        return Applier(client, operator.recorder, manager, caches)

    keys = Keys(
        client,
        settings.lease + KEYS_SUFFIX,
        settings.lease_namespace,
        _lease_owner(settings),
        new_token,
    )
    operator.add(keys, Group.OTHERS)
    found = controllers(
        client,
        caches,
        operator.cache(DIJOB),
        operator.cache(TRAININGJOB),
        _queues(operator, settings),
        applier,
        counters,
        now,
        provision=_provision(settings),
        token=keys.token,
        di_server=Server(settings.di_server, settings.di_server_version),
        di_key=_key_of_di_server(settings, keys),
        di_graceful=settings.di_graceful,
        concurrency=settings.concurrency,
    )
    for each in found:
        operator.add(each)
    return operator


def controllers(
    client: Client,
    caches: Caches,
    dijobs_: Cache[DIJob],
    trainings_: Cache[TrainingJob],
    queues: Queues,
    applier: Callable[[str], Applier],
    counters: Counters,
    now: Callable[[], datetime],
    *,
    provision: Provision,
    token: Callable[[str], str],
    di_server: Server,
    concurrency: int,
    di_key: Callable[[], bytes] = bytes,
    di_graceful: bool = False,
) -> Iterator[Controller]:
    """Yield the controllers of all kinds and of their queues, over caches that anything may fill."""
    orphans, rush = Orphans(client, caches, now), Rush()

    def master(job: ElasticJob) -> Manifest:
        spec: Manifest = master_pod(job, Node(MASTER, 0), provision).manifest["spec"]
        return spec

    sources = Sources(caches, dijobs_, master)
    admissions = {each.kind: Admission(queues, each) for each in (make(sources) for make in KINDS)}
    own = admissions[ELASTICJOB]
    reconcile_job = jobs.JobReconciler(
        caches,
        applier(jobs.MANAGER),
        orphans,
        provision,
        counters,
        now,
        token,
        GangApis(client, now),
        own,
        rush=rush,
    )
    reconcile_nodes = nodes.NodesReconciler(
        caches,
        applier(nodes.MANAGER),
        orphans,
        now,
        rooms=Rooms(caches),
        admission=own,
        rush=rush,
        log_format=provision.log_format,
    )
    reconcile_plans = plans.PlansReconciler(caches, applier(plans.MANAGER), counters, now, own)
    reconcile_dijobs = dijobs.DIJobReconciler(
        DIJobCaches(dijobs_, caches.pods, caches.services),
        applier(dijobs.MANAGER),
        now,
        di_server,
        counters.dijobs,
        di_key,
        di_graceful,
        admissions[DIJOB],
    )
    yield jobs.controller(reconcile_job, concurrency)
    yield nodes.controller(reconcile_nodes, concurrency)
    yield plans.controller(reconcile_plans, concurrency)
    for each in admissions.values():
        workloads = queue.QueueReconciler(client, each, applier(queue.MANAGER), now)
        yield queue.controller(workloads, concurrency)
    yield dijobs.controller(reconcile_dijobs, concurrency)
    reconcile_trainings = trainings.TrainingJobReconciler(
        trainings_, caches.jobs, applier(trainings.MANAGER), now
    )
    yield trainings.controller(reconcile_trainings, concurrency)


def _key_of_di_server(settings: Settings, keys: Keys) -> Callable[[], bytes]:
    """Return what reads the key of di-server; b"" where DIJobs have no tokens."""
    if file := settings.di_server_key_file:
        return lambda: file.read_bytes().strip()
    return keys.of_di_server if settings.di_server_tokens else bytes


def new_token() -> str:
    """Return a bearer token that cannot be guessed."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def _admission(operator: Operator, settings: Settings) -> WebhookServer:
    namespace, _, service = settings.webhook_service.partition("/")
    return WebhookServer(
        settings.webhook_host,
        settings.webhook_port,
        webhooks_of(settings, operator.client),
        client=operator.client,
        name="-".join(filter(None, (WEBHOOK_CONFIGURATION, settings.namespace))),
        service=ServiceRef(namespace, service) if service else None,
        secret=Key(namespace, f"{service}-certificate") if service else None,
        reachable_as=settings.webhook_address,
        certificates=Path(settings.webhook_certificates) if settings.webhook_certificates else None,
        inject_from=settings.webhook_inject_from,
        owner=Owner(CLUSTER_ROLE, settings.webhook_owner) if settings.webhook_owner else None,
        secret_owner=_lease_owner(settings),
        metrics=operator.metrics,
    )


def _lease_owner(settings: Settings) -> Owner | None:
    name, namespace = settings.lease_owner, settings.lease_namespace or None
    return Owner(ROLE, name, namespace) if name else None


def webhooks_of(settings: Settings, writer: Writer) -> tuple[Webhook[Any], ...]:
    """Return the webhooks; those of an operator of one namespace are not asked about others.

    A webhook that may be skipped by its own terms may always be: kubectl scale works without an operator.
    """
    without = (WITHOUT_BRAIN, *(each for each in WEBHOOKS if each.kind is not ELASTICJOB))
    found = (*(WEBHOOKS if settings.brain else without), scale.webhook(writer))
    chosen = {"matchLabels": {NAMESPACE_LABEL: settings.namespace}} if settings.namespace else {}
    return tuple(
        replace(
            each,
            terms=replace(
                each.terms,
                failure_policy=(
                    "Ignore" if each.terms.failure_policy == "Ignore" else settings.webhook_failure_policy
                ),
                timeout=settings.webhook_timeout,
                namespaces=chosen,
            ),
        )
        for each in found
    )


def _caches(operator: Operator, settings: Settings) -> Caches:
    return Caches(
        jobs=operator.cache(ELASTICJOB),
        resources=operator.cache(JOBRESOURCE),
        plans=operator.cache(SCALEPLAN),
        pods=operator.cache(POD),
        services=operator.cache(SERVICE),
        machines=operator.cache(NODE),
        taints=settings.ending_taints,
    )


def _queues(operator: Operator, settings: Settings) -> Queues:
    """Return Kueue's objects: the cluster may not have them, or may get them later."""
    return Queues(
        workloads=operator.cache(WORKLOAD, optional=True),
        locals=operator.cache(LOCAL_QUEUE, optional=True),
        clusters=operator.cache(CLUSTER_QUEUE, optional=True),
        flavors=operator.cache(FLAVOR, optional=True),
        cohorts=operator.cache(COHORT, optional=True),
        gives_back=settings.gives_back,
        stays=partial(stays, operator.client),
    )


def scrapers_of(settings: Settings) -> tuple[Mapping[str, str], ...]:
    """Return the labels of namespaces whose pods may read the metrics of masters: Brain's is one of them."""
    ours = {NAMESPACE_LABEL: settings.brain_namespace} if settings.brain_namespace else None
    return (*filter(None, (ours,)), *(each for each in settings.scrapers if each != ours))


def _provision(settings: Settings) -> Provision:
    requests = {"cpu": settings.master_cpu, "memory": settings.master_memory}
    key = settings.brain_key_file.read_bytes().strip() if settings.brain_key_file else b""
    return Provision(
        settings.trainer_image,
        settings.trainer_pull_policy,
        requests,
        scrapers_of(settings),
        settings.brain,
        key,
        gang_scheduler=settings.gang_scheduler,
        pod=settings.master_pod,
        security=settings.master_security_context,
        log_format=settings.job_log_format,
    )
