"""A framework for Kubernetes controllers, useful without training: it imports nothing of the rest.

    operator    a process that runs what follows: operator ← rungroup
    webhook     server ← handlers ← review (pure); registration; certs: certificates ← secret, mounted
    controller  controller (what to run when) ← queue, predicates, gate (read your writes)
    election    election (a thread) ← lease (pure: the rules)
    cache       cache (memory) ← informer ← protocol (pure) → store ← wire
    crd         model (what API kinds import); generate ← structural, rewriters, soundness, declaration
    client      client ← transport; config, kubeconfig; writes; fence (may a leader write?); recorder (Events)
    http        serving, probes
    objects     kinds, views, owner, conditions, problem
    testing     a proxy that does what networks and API servers do
    rest        errors, clock, backoff, metrics, asked (a request in RBAC's words), json

A room imports from the rooms below it only (import-linter holds that).

What most operators need can be imported from here, and is loaded when it is asked for: a program pays only
for what it uses. All else is imported from the modules. `docs/framework.md` writes an operator with it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from elasticjob.kube.client.client import Client
    from elasticjob.kube.client.config import load as load_config
    from elasticjob.kube.controller.controller import Controller, Result
    from elasticjob.kube.crd.generate import crd_manifest
    from elasticjob.kube.crd.model import Column, CustomResource, Declaration, Part
    from elasticjob.kube.election.election import Election
    from elasticjob.kube.errors import Terminal
    from elasticjob.kube.objects.kinds import Key, Kind, Manifest
    from elasticjob.kube.objects.owner import owner_reference
    from elasticjob.kube.objects.problem import Problem
    from elasticjob.kube.operator.operator import Operator
    from elasticjob.kube.webhook.review import Review, Webhook
    from elasticjob.kube.webhook.server import WebhookServer

__all__ = [
    "Client",
    "Column",
    "Controller",
    "CustomResource",
    "Declaration",
    "Election",
    "Key",
    "Kind",
    "Manifest",
    "Operator",
    "Part",
    "Problem",
    "Result",
    "Review",
    "Terminal",
    "Webhook",
    "WebhookServer",
    "crd_manifest",
    "load_config",
    "owner_reference",
]

_HOME = {
    "WebhookServer": "webhook.server",
    "Client": "client.client",
    "Column": "crd.model",
    "Controller": "controller.controller",
    "CustomResource": "crd.model",
    "Declaration": "crd.model",
    "Election": "election.election",
    "Key": "objects.kinds",
    "Kind": "objects.kinds",
    "Manifest": "objects.kinds",
    "Operator": "operator.operator",
    "Part": "crd.model",
    "Problem": "objects.problem",
    "Result": "controller.controller",
    "Review": "webhook.review",
    "Terminal": "errors",
    "Webhook": "webhook.review",
    "crd_manifest": "crd.generate",
    "load_config": "client.config",
    "owner_reference": "objects.owner",
}
"""In which module each name lives; a test holds it equal to the imports above."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"elasticjob.kube has no {name!r}: import it from its module")
    module = import_module(f"elasticjob.kube.{_HOME[name]}")
    return getattr(module, "load" if name == "load_config" else name)
