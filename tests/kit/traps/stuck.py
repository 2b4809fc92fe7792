"""An operator as a process, with a webhook whose handler never returns.

    python -m tests.kit.traps.stuck KUBECONFIG NAMESPACE

It says `asked` on its output each time that the handler is called.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence

from elasticjob.kube.client import config
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import CONFIG_MAP, ConfigMap
from elasticjob.kube.operator.operator import Operator
from elasticjob.kube.webhook.server import Problem, Review, Webhook, WebhookServer
from tests.kit.traps.terms import within

TIMEOUT = 2
"""Seconds that the API server waits for an answer."""


def hang(review: Review[ConfigMap]) -> Sequence[Problem]:
    print("asked", flush=True)
    threading.Event().wait()
    return []


async def main(kubeconfig: str, namespace: str) -> None:
    webhook = Webhook(CONFIG_MAP, validate=hang, terms=within(namespace, timeout=TIMEOUT))
    async with Client(await config.load(kubeconfig)) as client:
        operator = Operator(client, namespace, probes=None)
        operator.add(WebhookServer("127.0.0.1", 0, [webhook], client=client, name=namespace))
        await operator.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
