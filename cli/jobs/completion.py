"""Completion: of names in the cluster, and of commands of `kubectl ej`.

A shell waits for it, so that it gives up soon, and an error completes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from elasticjob.kube.objects.kinds import Manifest

SECONDS = 3.0


def jobs(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the names of jobs that begin so, with their phases."""
    found = _lines_of(ctx.params, "elasticjobs")
    given = ctx.params.get("names") or ()
    return [
        (each["metadata"]["name"], (each.get("status") or {}).get("phase", ""))
        for each in found
        if each["metadata"]["name"].startswith(incomplete) and each["metadata"]["name"] not in given
    ]


def goals(incomplete: str) -> list[str]:
    """Return what can be waited for, as far as it is a word that begins so."""
    words = ("complete", "running", "training", "suspended", "failed", "ended", "deleted")
    return [word for word in (*words, "condition=", "phase=", "jsonpath=") if word.startswith(incomplete)]


def namespaces(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of namespaces that begin so."""
    names = [each["metadata"]["name"] for each in _lines_of(ctx.params, "namespaces")]
    return [name for name in names if name.startswith(incomplete)]


def _lines_of(given: Mapping[str, Any], plural: str) -> list[Manifest]:
    with suppress(Exception):  # a shell that completes nothing says enough
        return asyncio.run(_list(given, plural))
    return []


async def _list(given: Mapping[str, Any], plural: str) -> list[Manifest]:
    from elasticjob.kube.client import config
    from elasticjob.kube.client.client import Client
    from elasticjob.kube.objects.kinds import Kind

    # not ELASTICJOB: its model is imported in a quarter of a second, and a shell waits
    kinds = {
        "elasticjobs": Kind("elastic.iml.github.io", "v1alpha1", "ElasticJob", "elasticjobs", dict[str, Any]),
        "namespaces": Kind("", "v1", "Namespace", "namespaces", dict[str, Any], namespaced=False),
    }
    async with asyncio.timeout(SECONDS):
        found = await config.load(given.get("kubeconfig"), given.get("context"))
        async with Client(found, timeout=SECONDS) as client:
            return await client.list(kinds[plural], given.get("namespace") or found.namespace)


def words(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the words after the program's name that a shell wants completed; [] where none does."""
    if not any(name.endswith("_COMPLETE") and name.startswith("_") for name in environ):
        return []
    return (environ.get("_TYPER_COMPLETE_ARGS") or environ.get("COMP_WORDS") or "").split()[1:]
