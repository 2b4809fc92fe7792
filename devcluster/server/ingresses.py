"""Ingresses: what they must say. They are kept and shown; nothing here answers to one."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.names import (
    missing,
    service_name_problem,
    subdomain_problem,
    unsupported,
    wrong,
)
from elasticjob.devcluster.server.store import Manifest
from elasticjob.devcluster.server.strategy import Strategy

_TYPES = ["Exact", "ImplementationSpecific", "Prefix"]
_NOT_WITHIN = ("//", "/./", "/../", "%2f", "%2F")
_NOT_LAST = ("/..", "/.")


def _start(ingress: Manifest) -> None:
    ingress["status"] = {"loadBalancer": {}}


def _check(ingress: Manifest) -> Iterator[Cause]:
    spec = ingress["spec"]
    backend, rules = spec.get("defaultBackend"), spec.get("rules") or ()
    if backend is None and not rules:
        yield wrong("spec", None, "either `defaultBackend` or `rules` must be specified")
    if backend is not None:
        yield from _backend_problems(backend, "spec.defaultBackend")
    for index, rule in enumerate(rules):
        yield from _rule_problems(rule, f"spec.rules[{index}]")


def _rule_problems(rule: Manifest, path: str) -> Iterator[Cause]:
    host = rule.get("host") or ""
    if host and _is_address(host):
        yield wrong(f"{path}.host", host, "must be a DNS name, not an IP address")
    if host and (problem := subdomain_problem(host.removeprefix("*."))):
        yield wrong(f"{path}.host", host, problem)
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths") or ()
    if not paths:
        yield missing(f"{path}.http.paths")
    for index, each in enumerate(paths):
        yield from _path_problems(each, f"{path}.http.paths[{index}]")


def _path_problems(item: Manifest, path: str) -> Iterator[Cause]:
    kind, place = item.get("pathType"), item.get("path") or ""
    if kind is None:
        yield missing(f"{path}.pathType", "pathType must be specified")
        return
    if kind not in _TYPES:
        yield unsupported(f"{path}.pathType", kind, _TYPES)
    elif not place.startswith("/") and (place or kind != "ImplementationSpecific"):
        yield wrong(f"{path}.path", place, "must be an absolute path")
    if kind in ("Exact", "Prefix"):
        yield from (
            wrong(f"{path}.path", place, f"must not contain '{bad}'") for bad in _NOT_WITHIN if bad in place
        )
        ends = (bad for bad in _NOT_LAST if place.endswith(bad))
        yield from (wrong(f"{path}.path", place, f"cannot end with '{bad}'") for bad in ends)
    yield from _backend_problems(item.get("backend") or {}, f"{path}.backend")


def _backend_problems(backend: Manifest, path: str) -> Iterator[Cause]:
    service = backend.get("service")
    if service is not None and backend.get("resource") is not None:
        yield wrong(path, "", "cannot set both resource and service backends")
    elif service is not None:
        yield from _service_problems(service, path)
    elif backend.get("resource") is None:
        yield wrong(path, "", "resource or service backend is required")


def _service_problems(service: Manifest, path: str) -> Iterator[Cause]:
    name, port = service.get("name") or "", service.get("port") or {}
    if not name:
        yield missing(f"{path}.service.name")
    elif problem := service_name_problem(name):
        yield wrong(f"{path}.service.name", name, problem)
    if port.get("name") and port.get("number"):
        yield wrong(path, "", "cannot set both port name & port number")
    elif not port.get("name") and not port.get("number"):
        yield missing(path, "port name or number is required")
    elif port.get("number") and not 0 < port["number"] < 65536:
        why = "must be between 1 and 65535, inclusive"
        yield wrong(f"{path}.service.port.number", port["number"], why)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


INGRESS = Strategy(start=_start, check=_check, generation=True, says_all=True)
