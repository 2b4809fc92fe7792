"""Playing a probe against one server: requests out, observations back, not yet normalised."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import aiohttp
from multidict import CIMultiDict

from lab.waiting import PATIENCE, PAUSE
from tests.conformance.hooks import Hooks
from tests.conformance.probe import CRDS, NAMESPACES, Probe, Raw, Step

_HOLE = re.compile(r"\{([a-z]\w*)\}")
Observation = dict[str, Any]


class NeverReached(Exception):
    """A step of a probe waited for something that did not come; the steps before it say why."""


@dataclass
class Played:
    """What a probe saw: one observation per step, and the names that stand for its own place."""

    observations: list[Observation]
    places: Mapping[str, str]


@dataclass
class Server:
    """One side: a session on it (the administrator's, and nobody's), and the webhook server it may call."""

    session: aiohttp.ClientSession
    bare: aiohttp.ClientSession
    hooks: Hooks
    run: str = ""
    """Sets the names of one run apart, on a server that outlives it."""
    token_of: Callable[[str, tuple[str, ...]], str] | None = None
    """A token for a user in these groups, where the server serves no impersonation."""
    _places: dict[str, str] = field(default_factory=dict)


async def play(server: Server, probe: Probe) -> Played:
    """Make the probe's namespace, send its steps in order, tidy up.

    Raises NeverReached where a step waits in vain: what did not happen on either side would be equal.
    """
    namespace = f"{probe.slug}{server.run}"
    values = {
        "ns": namespace,
        "group": f"{namespace}.example.com",
        "hook": f"{server.hooks.url}/{namespace}",
        "ca": server.hooks.ca,
    }
    places = {"ns": namespace, "hook": server.hooks.url, "ca": server.hooks.ca}
    await _prepare(server, namespace, probe.steps)
    observations: list[Observation] = []
    try:
        async with asyncio.timeout(PATIENCE):
            for step in probe.steps:
                observations += await _steps(server, step, values)
    except TimeoutError:
        codes = [each.get("code") for each in observations]
        raise NeverReached(f"{probe.name}: after steps with {codes} the next one waits in vain") from None
    finally:
        if server.run:  # another server ends with its probes
            await _tidy(server, namespace)
    return Played(observations, places)


async def _prepare(server: Server, namespace: str, steps: Iterable[Step]) -> None:
    """A namespace with what a controller makes in it, as far as the steps could see it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    await _raw(server, "POST", NAMESPACES, body)
    paths = " ".join(step.path for step in steps)
    if "/pods" in paths or "/serviceaccounts" in paths:
        path = f"{NAMESPACES}/{namespace}/serviceaccounts"
        await _raw(server, "POST", path, {"metadata": {"name": "default"}})
    if "/configmaps" in paths:
        path = f"{NAMESPACES}/{namespace}/configmaps"
        await _raw(server, "POST", path, {"metadata": {"name": "kube-root-ca.crt"}})


async def _tidy(server: Server, namespace: str) -> None:
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        await _raw(server, "DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}/{namespace}")
    for kind in ("clusterroles", "clusterrolebindings"):
        await _raw(
            server, "DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}?labelSelector=probe={namespace}"
        )
    await _raw(server, "DELETE", f"{CRDS}/things.{namespace}.example.com")
    await _raw(server, "DELETE", f"{NAMESPACES}/{namespace}")


async def _raw(server: Server, method: str, path: str, body: Any = None) -> None:
    async with server.session.request(method, path, json=body) as answer:
        await answer.read()


async def _steps(server: Server, step: Step, values: dict[str, str]) -> list[Observation]:
    if step.method == "REVIEWS":
        return [{"reviews": server.hooks.reviews(_filled(step.path, values))}]
    if step.events:
        return await _watched(server, step, values)
    while not _is_reached(step, found := await _send(server, step, values)):  # noqa: ASYNC110 - only asking tells
        await asyncio.sleep(PAUSE)
    _take(step, found, values)
    return [_shown(step, found)]


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    """The value with its holes filled; names that nobody gave stay as they are."""
    if isinstance(value, Raw):
        return Raw(_filled(str(value), values))
    if isinstance(value, str):
        return _HOLE.sub(lambda found: values.get(found[1], found[0]), value)
    if isinstance(value, dict):
        return {_filled(key, values): _filled(each, values) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(each, values) for each in value]
    return value


def _request(step: Step, values: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
    body = _filled(step.body, values)
    headers = CIMultiDict({"Accept": step.accept, "User-Agent": "probe/1"})
    for name, found in _filled(dict(step.headers), values).items():
        headers.popall(name, None)
        headers.extend((name, each) for each in (found if isinstance(found, list) else [found]))
    data = None
    if body is not None:
        data = BytesIO(body.encode() if isinstance(body, Raw) else json.dumps(body).encode())
        headers["Content-Type"] = step.media
    more = {"params": _filled(dict(step.query), values), "headers": headers, "data": data}
    return step.method, _filled(step.path, values), more


async def _send(server: Server, step: Step, values: Mapping[str, str]) -> Observation:
    method, path, more = _request(step, values)
    _act(server, more["headers"])
    async with (server.bare if step.bare else server.session).request(method, path, **more) as answer:
        return await _observed(answer)


def _act(server: Server, headers: CIMultiDict[str]) -> None:
    """Send a token of the user that the request is to come from, in place of its impersonation."""
    if server.token_of is not None and "Impersonate-User" in headers:
        user, groups = headers.pop("Impersonate-User"), tuple(headers.popall("Impersonate-Group", ()))
        headers["Authorization"] = f"Bearer {server.token_of(user, groups)}"


async def _observed(answer: aiohttp.ClientResponse) -> Observation:
    text = await answer.text()
    body = json.loads(text) if "json" in answer.content_type and text else text
    found: Observation = {"code": answer.status, "body": body}
    warnings = [each.partition(" - ")[2].strip('"') for each in answer.headers.getall("Warning", [])]
    if warnings:
        found["warnings"] = warnings
    if "Retry-After" in answer.headers:
        found["retryAfter"] = answer.headers["Retry-After"]
    return found


def _is_reached(step: Step, found: Observation) -> bool:
    if step.until is None:
        return True
    if isinstance(step.until, int):
        return bool(found["code"] == step.until)
    return all(dig(found["body"], path) == value for path, value in step.until.items())


def dig(body: Any, path: str) -> Any:
    """The part of a body at a dotted path; `\\.` is a dot in a name; None where there is nothing."""
    if path == "*":
        return body
    for part in re.split(r"(?<!\\)\.", path):
        name = part.replace("\\.", ".")
        if isinstance(body, list) and name.isdigit() and int(name) < len(body):
            body = body[int(name)]
        elif isinstance(body, dict):
            body = body.get(name)
        else:
            return None
    return body


def _take(step: Step, found: Observation, values: dict[str, str]) -> None:
    for name, path in step.take.items():
        value = dig(found["body"], path)
        values[name] = value if isinstance(value, str) else json.dumps(value)


def _shown(step: Step, found: Observation) -> Observation:
    if step.show is not None:
        if found["code"] >= 400 and step.show:
            return found
        kept = {"code": found["code"]}
        return kept | ({"parts": {path: dig(found["body"], path) for path in step.show}} if step.show else {})
    return found


async def _watched(server: Server, step: Step, values: dict[str, str]) -> list[Observation]:
    method, path, more = _request(step, values)
    events: list[Any] = []
    seen: list[Observation] = []
    _act(server, more["headers"])
    async with (server.bare if step.bare else server.session).request(method, path, **more) as answer:
        if answer.status != 200:
            found = await _observed(answer)
            return [found if step.show is None else {"code": answer.status}]
        for each in step.meanwhile:
            seen += await _steps(server, each, values)
        async for line in answer.content:
            event = json.loads(line)
            if event["type"] == "BOOKMARK" and not _counts(step, event["object"]):
                continue
            events.append(_event(step, event))
            if len(events) >= step.events:
                break
    return [*seen, {"code": 200, "events": events}]


def _counts(step: Step, bookmark: dict[str, Any]) -> bool:
    """Whether a bookmark is looked at: the one that ends initial events, where those are asked for.

    Others may come in between, when the server likes.
    """
    ends = "k8s.io/initial-events-end" in bookmark["metadata"].get("annotations", {})
    return step.bookmarks and (ends or "sendInitialEvents" not in step.query)


def _event(step: Step, event: dict[str, Any]) -> dict[str, Any]:
    if step.show is None or event["type"] in ("ERROR", "BOOKMARK"):
        return event
    return {"type": event["type"], "parts": {path: dig(event["object"], path) for path in step.show}}
