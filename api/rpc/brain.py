"""Requests of masters to Brain: facts and samples (api/sizes) in, sizes out. Amounts are quantities.

Each is `POST /v1/brain/<verb>` with a bearer token; errors are problem+json (message.py). Brain keys what it
keeps by the uid of the job, and a token is good for one uid: the operator and Brain share the key, masters do
not have it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated, ClassVar, Self

import msgspec

from elasticjob.api.numbers import Count
from elasticjob.api.resources import Resources
from elasticjob.api.rpc.message import Empty, Message, Request
from elasticjob.api.sizes.change import LONGEST, Change, Group
from elasticjob.api.sizes.facts import JobFacts, Placement, Sample, Stage
from elasticjob.api.sizes.role import Quantities

Text = Annotated[str, msgspec.Meta(max_length=LONGEST)]
MOST_RECORDS = 256


def job_token(key: bytes, uid: str) -> str:
    """Return the token of a job: HMAC-SHA256 of its uid, in hexadecimal digits."""
    return hmac.new(key, uid.encode(), hashlib.sha256).hexdigest()


class Size(Message, frozen=True, kw_only=True):
    """The new size of a role; absent fields stay unchanged."""

    count: Count | None = None
    resource: Quantities = msgspec.field(default_factory=dict)


class Sizes(Message, frozen=True, kw_only=True):
    """A change (api/sizes/change.py) as a message."""

    groups: dict[str, Size] = msgspec.field(default_factory=dict)
    nodes: dict[str, Quantities] = msgspec.field(default_factory=dict)
    reason: Text = ""
    algorithm: str = ""

    @classmethod
    def of(cls, change: Change) -> Self:
        """Return the message of a change."""
        groups = {
            role: Size(count=group.count, resource=group.resource.manifest())
            for role, group in change.groups.items()
        }
        nodes = {name: resource.manifest() for name, resource in change.nodes.items()}
        return cls(groups=groups, nodes=nodes, reason=change.reason[:LONGEST], algorithm=change.algorithm)

    @property
    def change(self) -> Change:
        """The change. Raises MalformedQuantity."""
        groups = {role: Group(s.count, Resources.parse(s.resource)) for role, s in self.groups.items()}
        nodes = {name: Resources.parse(resource) for name, resource in self.nodes.items()}
        return Change(groups, nodes, self.reason, algorithm=self.algorithm)


Records = Annotated[tuple[Sample, ...], msgspec.Meta(max_length=MOST_RECORDS)]


class AskSizes(Request[Sizes], frozen=True, kw_only=True):
    """Request the sizes of a job at a stage."""

    PATH: ClassVar[str] = "brain/sizes"

    job: JobFacts
    stage: Stage
    placed: Placement = Placement()
    records: Records = ()
    settled: bool = False
    """Whether all nodes train at the present size for long enough, so that numbers may change."""


class TellStatistics(Request[Empty], frozen=True, kw_only=True):
    """New records of a job. `dropped` counts those that were lost on the way, since the master began."""

    PATH: ClassVar[str] = "brain/statistics"

    job: JobFacts
    records: Records
    dropped: Count = 0
