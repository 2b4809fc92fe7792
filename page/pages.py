"""The requests of the page, for any server: who may send them is that server's rule.

GET /                                     the page
GET /page/<file>                          its files
GET /page/fleet                           all jobs, and the nodes
GET /page/jobs/<namespace>/<name>         one job
GET /page/logs/<namespace>/<pod>          the last lines of a pod; ?container=
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec
from aiohttp import web

from elasticjob.kube.errors import KubeError
from elasticjob.page.files import INDEX, Body, body_of, files
from elasticjob.page.watch import NoSuchPod

Handler = Callable[[web.Request], Awaitable[web.Response]]

JSON: Final = "application/json"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Of all responses: nothing is loaded from elsewhere, run from a string, framed, or kept unasked."""


class Views(Protocol):
    """What the page shows, as JSON: a Watch, or what a Brain without a cluster remembers."""

    async def fleet(self) -> bytes:
        """Return all jobs."""

    async def job(self, namespace: str, name: str) -> bytes:
        """Return one job."""

    async def log(self, namespace: str, name: str, container: str = "") -> bytes:
        """Return the last lines of a pod. Raises NoSuchPod, KubeError, TimeoutError."""


class Pages:
    """Answers the requests of the page. Without `logs` no log is shown."""

    def __init__(self, watch: Views, *, logs: bool = True) -> None:
        self._watch, self._logs = watch, logs

    @property
    def routes(self) -> Mapping[str, Handler]:
        """The handlers by path."""
        return {
            "/": self._index,
            "/page/fleet": self._fleet,
            "/page/jobs/{namespace}/{name}": self._job,
            "/page/logs/{namespace}/{name}": self._log,
            "/page/{file}": self._file,
        }

    async def _index(self, request: web.Request) -> web.Response:
        return answer(request, files()[INDEX])

    async def _file(self, request: web.Request) -> web.Response:
        found = files().get(request.match_info["file"])
        return answer(request, found) if found else refusal(404, "no such file")

    async def _fleet(self, request: web.Request) -> web.Response:
        return answer(request, body_of(await self._watch.fleet(), JSON))

    async def _job(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        return answer(request, body_of(await self._watch.job(namespace, name), JSON))

    async def _log(self, request: web.Request) -> web.Response:
        if not self._logs:
            return refusal(
                403, "this Brain shows logs to readers with a token alone: give it --reading-token-file"
            )
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        try:
            found = await self._watch.log(namespace, name, request.query.get("container", ""))
        except NoSuchPod as error:
            return refusal(404, str(error))
        except TimeoutError:
            return refusal(504, "the API server does not send the log in time")
        except KubeError as error:
            return refusal(502, str(error))
        return answer(request, body_of(found, JSON))


def answer(request: web.BaseRequest, body: Body) -> web.Response:
    """Return a body, or 304 where the client has it; compressed where it takes that."""
    headers = {**HEADERS, "ETag": body.tag, "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == body.tag:
        return web.Response(status=304, headers=headers)
    packs = "gzip" in request.headers.get("Accept-Encoding", "")
    if packs:
        headers["Content-Encoding"] = "gzip"
    charset = None if body.type.startswith("image/") else "utf-8"
    sent = body.packed if packs else body.plain
    return web.Response(body=sent, content_type=body.type, charset=charset, headers=headers)


def refusal(status: int, why: str) -> web.Response:
    """Return an error that the page shows as a sentence."""
    body = msgspec.json.encode({"detail": why[:1024]})
    return web.Response(status=status, body=body, content_type=JSON, headers=HEADERS)
