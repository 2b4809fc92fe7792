"""The page on this machine: who may see it, what its responses forbid, and what bounds them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
from aiohttp.test_utils import make_mocked_request

from elasticjob.kube.errors import Unreachable
from elasticjob.page.files import FOLDER, files
from elasticjob.page.local import LARGEST, Gate, serving
from elasticjob.page.pages import Pages
from elasticjob.page.watch import NoSuchPod

HOSTILE: Final = "</script><img src=x onerror=alert(1)>"


@dataclass
class Shown:
    """What the page shows, without a cluster."""

    asked: list[str] = field(default_factory=list)

    async def fleet(self) -> bytes:
        return json.dumps({"jobs": [HOSTILE] * 200}).encode()

    async def job(self, namespace: str, name: str) -> bytes:
        self.asked.append(f"{namespace}/{name}")
        return json.dumps({"name": name}).encode()

    async def log(self, namespace: str, name: str, container: str = "") -> bytes:
        match name:
            case "gone":
                raise NoSuchPod("no job has a pod ml/gone")
            case "away":
                raise Unreachable("it does not answer")
            case "slow":
                raise TimeoutError
            case "broken":
                raise KeyError(name)
        return json.dumps({"text": f"{name} {container}"}).encode()


@dataclass(frozen=True)
class Site:
    """A page, and a browser that was given its URL."""

    url: str
    token: str
    session: aiohttp.ClientSession
    shown: Shown

    async def get(
        self, path: str, headers: Mapping[str, str] = {}, *, right: bool = True
    ) -> tuple[int, bytes, Any]:
        sent = {"Accept-Encoding": "identity"}
        if right:
            sent["Authorization"] = f"Bearer {self.token}"
        async with self.session.get(
            self.url + path, headers={**sent, **headers}, allow_redirects=False
        ) as response:
            return response.status, await response.read(), response.headers


@asynccontextmanager
async def page(*, logs: bool = True) -> AsyncIterator[Site]:
    shown = Shown()
    async with (
        serving(Pages(shown, logs=logs)) as url,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        parts = urlsplit(url)
        yield Site(f"http://{parts.netloc}", parts.query.removeprefix("token="), session, shown)


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    async with page() as found:
        yield found


PATHS: Final = (
    "/",
    "/page/app.js",
    "/page/fleet",
    "/page/jobs/ml/digits",
    "/page/logs/ml/pod",
    "/page/none",
    "/x",
)


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_shown_without_the_token(site: Site, path: str) -> None:
    for given in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Cookie": f"elasticjob-{urlsplit(site.url).port}=wrong"},
    ):
        status, body, _ = await site.get(path, given, right=False)
        assert (status, b"it has a token" in body) == (401, True)
    status, _, _ = await site.get(f"{path}?token=wrong")
    assert status == 401
    assert site.shown.asked == []


async def test_the_url_gives_a_cookie_and_is_forgotten(site: Site) -> None:
    status, _, headers = await site.get(f"/?token={site.token}", right=False)
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Strict", "Path=/"))
    status, body, _ = await site.get("/", {"Cookie": cookie.partition(";")[0]}, right=False)
    assert (status, b"<title>elasticjob</title>" in body) == (200, True)
    status, _, _ = await site.get(f"/page/fleet?token={site.token}", right=False)
    assert status == 401  # the token is for the first page alone: other URLs stay in histories


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}", ""]
)
async def test_a_name_that_was_made_to_lead_here_is_refused(site: Site, host: str) -> None:
    port = urlsplit(site.url).port
    for path in PATHS:
        status, _, _ = await site.get(path, {"Host": host.format(port=port)})
        assert status == 421
    assert (await site.get("/", {"Host": f"localhost:{port}"}))[0] == 200


@pytest.mark.parametrize("path", PATHS)
async def test_every_response_forbids_scripts_of_others(site: Site, path: str) -> None:
    for right in (True, False):
        _, _, headers = await site.get(path, right=right)
        rules = dict(each.strip().split(" ", 1) for each in headers["Content-Security-Policy"].split(";"))
        assert rules["default-src"] == "'none'"
        assert {rules[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
        assert rules["frame-ancestors"] == "'none'"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"


async def test_hostile_words_travel_as_json(site: Site) -> None:
    _, body, headers = await site.get("/page/fleet")
    assert headers["Content-Type"] == "application/json; charset=utf-8"
    assert json.loads(body)["jobs"][0] == HOSTILE


def test_the_page_has_no_script_of_its_own_line_and_loads_nothing_from_elsewhere() -> None:
    index = files()["index.html"].plain.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    assert re.findall(r"\bon\w+=|style=|<style|javascript:", index) == []
    sources = re.findall(r'(?:src|href)="([^"#]+)"', index)
    assert {source.removeprefix("page/") for source in sources} <= {*files()}
    ours = [
        path
        for path in FOLDER.iterdir()
        if path.suffix in (".js", ".css", ".html") and "uPlot" not in path.name
    ]
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)"
    assert {path.name: found for path in ours if (found := re.findall(forbidden, path.read_text()))} == {}


async def test_a_response_is_sent_again_only_when_it_changes(site: Site) -> None:
    status, body, headers = await site.get("/page/fleet", {"Accept-Encoding": "gzip"})
    assert (status, headers["Content-Encoding"]) == (200, "gzip")
    assert len(body) < len(gzip.decompress(body)) / 10
    status, body, _ = await site.get("/page/fleet", {"If-None-Match": headers["ETag"]})
    assert (status, body) == (304, b"")


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/page/logs/ml/pod?container=main", 200, ""),
        ("/page/logs/ml/gone", 404, "no job has a pod ml/gone"),
        ("/page/logs/ml/away", 502, "it does not answer"),
        ("/page/logs/ml/slow", 504, "the API server does not send the log in time"),
        ("/page/logs/ml/broken", 500, ""),
        ("/page/..%2Fpages.py", 404, "no such file"),
        ("/page/none.js", 404, "no such file"),
    ],
)
async def test_what_cannot_be_shown_is_said(site: Site, path: str, status: int, detail: str) -> None:
    found, body, _ = await site.get(path)
    assert (found, detail in body.decode()) == (status, True)


async def test_logs_are_shown_only_where_they_may_be() -> None:
    async with page(logs=False) as site:
        status, body, _ = await site.get("/page/logs/ml/pod")
    assert (status, "--reading-token-file" in body.decode()) == (403, True)


async def test_requests_that_write_or_are_large_are_refused(site: Site) -> None:
    headers = {"Authorization": f"Bearer {site.token}"}
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        async with site.session.request(
            method, f"{site.url}/page/fleet", data=b"x", headers=headers
        ) as response:
            assert response.status == 405
    async with site.session.get(f"{site.url}/", data=b"x" * 64 * LARGEST, headers=headers) as response:
        assert response.status == 200  # what is sent beside a GET is not read
    async with site.session.get(f"{site.url}/?x={'x' * 20_000}", headers=headers) as response:
        assert response.status == 400


@pytest.mark.parametrize(("port", "host", "passes"), [(80, "127.0.0.1", True), (8080, "127.0.0.1", False)])
def test_browsers_leave_out_port_80(port: int, host: str, passes: bool) -> None:
    gate = Gate("token")
    gate.port = port
    request = make_mocked_request("GET", "/", {"Host": host, "Authorization": "Bearer token"})
    assert (gate.refusal(request) is None) == passes
