"""di-server as a process: caches, the service, the server."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from typing import Final

from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.diengine.names import OURS, SUFFIX
from elasticjob.api.diengine.pods import Server as ServerInfo
from elasticjob.controllers.diserver.access import Access
from elasticjob.controllers.diserver.apply import Writer
from elasticjob.controllers.diserver.asked import Limits
from elasticjob.controllers.diserver.server import Server
from elasticjob.controllers.diserver.service import Caches, Options, Service
from elasticjob.controllers.diserver.settings import Settings
from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.patience import Patience
from elasticjob.kube.client.recorder import Recorder
from elasticjob.kube.clock import Clock
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import POD
from elasticjob.kube.operator.operator import Group, Operator

NAME: Final = "elasticjob-di-server"
LETTERS: Final = string.ascii_lowercase + string.digits


async def run(settings: Settings) -> None:
    """Run di-server until SIGTERM, SIGINT or cancellation."""
    found = await config.load(settings.kubeconfig, settings.context)
    async with Client(found, user_agent=NAME) as client:
        operator, _ = compose(client, settings)
        await operator.run()


def compose(
    client: Client,
    settings: Settings,
    *,
    signals: bool = True,
    random_suffix: Callable[[], str] | None = None,
) -> tuple[Operator, Server]:
    """Return di-server, not started, and the part of it that listens."""
    operator = Operator(client, settings.namespace, name=NAME, signals=signals, probes=None)
    caches = Caches(operator.cache(DIJOB), operator.cache(POD, labels=OURS), operator.cache(AGGREGATORCONFIG))
    service = service_of(client, caches, settings, operator.clock, operator.recorder, random_suffix or draw)
    server = Server(service, operator.metrics.registry, host=settings.host, port=settings.port)
    operator.add(server, Group.HTTP)
    return operator, server


def service_of(
    client: Client,
    caches: Caches,
    settings: Settings,
    clock: Clock,
    recorder: Recorder,
    random_suffix: Callable[[], str],
) -> Service:
    """Return what answers calls, over caches that anything may fill."""
    options = Options(
        Limits(settings.most_per_request, settings.most_per_job, settings.most_gpus),
        Key(settings.agconfig_namespace, settings.agconfig_name),
        settings.namespace,
        settings.local_ports,
    )
    patience = Patience(clock)
    server_info = ServerInfo(settings.url, settings.api_version, settings.key_file is not None)
    writer = Writer(client, caches.pods, recorder, patience, random_suffix, server_info)
    return Service(client, caches, writer, Access(settings.key_file), patience, random_suffix, options)


def draw() -> str:
    """Return five small letters and digits by chance."""
    return "".join(secrets.choice(LETTERS) for _ in range(SUFFIX))
