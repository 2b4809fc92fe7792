"""The aggregated API `external.metrics.k8s.io`: one number for each namespace, which an HPA scales by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import SERVICE
from lab.clusters.plane.pki import Pair
from lab.clusters.plane.queues import conditions
from lab.incumbents.serving import serving
from lab.waiting import until

GROUP, VERSION, METRIC = "external.metrics.k8s.io", "v1beta1", "load"
API: Final = f"/apis/{GROUP}/{VERSION}"
APISERVICE: Final = Kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", dict, namespaced=False)
VALUES: Final = "ExternalMetricValueList"
METRICS: Final[Manifest] = {"name": METRIC, "namespaced": True, "kind": VALUES, "verbs": ["get"]}


@dataclass
class Loads:
    """The load of each namespace, 10 for each pod that it keeps busy."""

    of: dict[str, int] = field(default_factory=lambda: defaultdict(lambda: 20))

    async def discovery(self, request: web.Request) -> web.Response:
        found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        return web.json_response({**found, "resources": [METRICS]})

    async def value(self, request: web.Request) -> web.Response:
        load, now = str(self.of[request.match_info["namespace"]]), timestamp(datetime.now(UTC))
        item = {"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": load}
        about = {"kind": VALUES, "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
        return web.json_response({**about, "items": [item]})


@asynccontextmanager
async def external_metrics(client: Client, pair: Pair) -> AsyncIterator[Loads]:
    """Serve the API with a certificate of `pair`, and have the API server pass requests on to it."""
    loads, application = Loads(), web.Application()
    application.router.add_get(API, loads.discovery)
    application.router.add_get(f"{API}/namespaces/{{namespace}}/{METRIC}", loads.value)
    async with serving(application, pair) as port:
        about = {"name": METRIC, "namespace": "default"}
        outside = {"type": "ExternalName", "externalName": "localhost"}
        await client.create(SERVICE.untyped(), {"metadata": about, "spec": outside})
        spec = {
            "group": GROUP,
            "version": VERSION,
            "service": {**about, "port": port},
            "insecureSkipTLSVerify": True,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        await client.create(APISERVICE, {"metadata": {"name": f"{VERSION}.{GROUP}"}, "spec": spec})

        async def is_there() -> bool:
            found = await client.get(APISERVICE, f"{VERSION}.{GROUP}")
            return "Available" in conditions(found)

        await until(is_there, f"{GROUP} is available")
        yield loads
