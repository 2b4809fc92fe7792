"""Test tools for operators: a proxy that injects the faults of networks and API servers.

from elasticjob.kube.testing import CutAfter, FaultProxy, asking

async with FaultProxy(config) as proxy, Client(proxy.config) as client:
    proxy.add(asking(verb="watch", resource="pods"), CutAfter(4096), nth=range(1, 4))
    ...
"""

from elasticjob.kube.asked import ApiRequest
from elasticjob.kube.testing.asked import asking
from elasticjob.kube.testing.faults import (
    Answer,
    CutAfter,
    Delay,
    Exchange,
    Fault,
    FaultProxy,
    Flaky,
    Late,
    Lose,
    Refuse,
    Rule,
    Stall,
    failure,
    html,
)

__all__ = [
    "Answer",
    "ApiRequest",
    "CutAfter",
    "Delay",
    "Exchange",
    "Fault",
    "FaultProxy",
    "Flaky",
    "Late",
    "Lose",
    "Refuse",
    "Rule",
    "Stall",
    "asking",
    "failure",
    "html",
]
