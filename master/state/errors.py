"""Errors with which requests are refused. Handlers raise these; the server turns them into problem+json.

RequestError
├── Stale      409  the sender was replaced, or its round is over
├── Refused    409  the job's state forbids it
└── Stopping   503  the job ends
"""

from __future__ import annotations

from typing import ClassVar

from elasticjob.api.rpc.message import Problem


class RequestError(Exception):
    """A refused request; the job is unchanged. The message says what was wrong, and the next step."""

    code: ClassVar[str]
    status: ClassVar[int]
    title: ClassVar[str]

    def problem(self) -> Problem:
        """Return the error as it is sent to the client."""
        return Problem(title=self.title, status=self.status, detail=str(self), code=self.code)


class Stale(RequestError):
    """The sender was replaced, or its round is over."""

    code, status, title = "stale", 409, "The sender is out of date"


class Refused(RequestError):
    """The job's state forbids the request for good; retrying will not help."""

    code, status, title = "refused", 409, "The job does not allow this"


class Stopping(RequestError):
    """The job has its verdict."""

    code, status, title = "stopping", 503, "The job ends"
