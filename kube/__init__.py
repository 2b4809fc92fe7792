"""A framework for Kubernetes controllers, useful without training: it imports nothing of the rest.

    observe   client (asks the server) ← transport; cache (memory) ← informer ← watch (pure) → store ← wire
    run       controller (what to run when) ← queue, predicates; operator (a process) ← rungroup, probes
    lead      election (a thread) ← lease (pure: who may lead); fence (what a leader may still send)
    admit     admission (a server) ← answering ← review (pure); registration; problem
    trust     secret (an authority that replicas share), mounted (cert-manager's); certificates
    write     client.apply and patches; conditions, owner, events; running (reads its own writes)
    declare   crd: model (what API kinds import); generate ← structural, rewriters, soundness, declaration
    rest      kinds, objects: types; config, kubeconfig: where and who; clock, backoff: time; metrics, errors
    testing   a proxy that does what networks and API servers do

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
    from elasticjob.kube.webhook.server import AdmissionServer

__all__ = [
    "AdmissionServer",
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
    "crd_manifest",
    "load_config",
    "owner_reference",
]

_HOME = {
    "AdmissionServer": "webhook.server",
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
