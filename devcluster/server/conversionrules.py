"""How a definition may have its objects converted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import (
    forbidden,
    missing,
    service_name_problem,
    subdomain_problem,
    wrong,
)

_REVIEWS = ("v1", "v1beta1")


def conversion_problems(conversion: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """A webhook that is not there, or whose address or protocol nobody can use; one that is not asked."""
    webhook = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if conversion.get("strategy") == "Webhook":
        yield from _client_problems(client, f"{path}.webhookClientConfig")
        yield from _review_problems(versions, f"{path}.conversionReviewVersions")
        return
    for name, value in (("webhookClientConfig", client), ("conversionReviewVersions", versions)):
        if value:
            yield forbidden(f"{path}.{name}", "should not be set when strategy is not set to Webhook")


def _client_problems(client: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    if client is None:
        yield missing(path, "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        yield missing(path, "exactly one of url or service is required")
    elif client.get("url") is not None:
        yield from _url_problems(client["url"], f"{path}.url")
    else:
        yield from _service_problems(client["service"], f"{path}.service")


def _url_problems(text: str, path: str) -> Iterator[Cause]:
    form = "; desired format: https://host[/path]"
    url = urlsplit(text)
    if url.scheme != "https":
        yield wrong(path, url.scheme, f"'https' is the only allowed URL scheme{form}")
    if not url.netloc:
        yield wrong(path, "", f"host must be specified{form}")
    if url.username:
        told = f"{url.username}:{url.password}" if url.password is not None else url.username
        yield wrong(path, told, "user information is not permitted in the URL")
    if url.fragment:
        yield wrong(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        yield wrong(path, url.query, "query parameters are not permitted in the URL")


def _service_problems(service: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """The real server takes the two names for each other when one is missing; so does this."""
    for told, name in (("name", "namespace"), ("namespace", "name")):
        if not service.get(name):
            yield missing(f"{path}.{told}")
    port = service.get("port", 443)
    if not 0 < port < 65536:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        yield wrong(f"{path}.port", port, why)
    yield from _path_problems(service.get("path") or "/", f"{path}.path")


def _path_problems(text: str, path: str) -> Iterator[Cause]:
    if text == "/":
        return
    if not text.startswith("/"):
        yield wrong(path, text, "must start with a '/'")
    for index, step in enumerate(text[1:].removesuffix("/").split("/")):
        problem = subdomain_problem(step) if step else ""
        if not step or problem:
            yield wrong(
                path, text, f"segment[{index}]: {problem}" if step else f"segment[{index}] may not be empty"
            )


def _review_problems(versions: list[str], path: str) -> Iterator[Cause]:
    if not versions:
        yield missing(path)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield wrong(f"{path}[{index}]", version, "duplicate version")
        elif problem := service_name_problem(version):
            yield wrong(f"{path}[{index}]", version, problem)
    if not set(versions) & set(_REVIEWS):
        yield wrong(path, versions, f"must include at least one of {', '.join(_REVIEWS)}")
