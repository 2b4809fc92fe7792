"""Authorization of calls for a job: with tokens, the pods of that job alone may call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from elasticjob.api.diengine.access import is_token_of
from elasticjob.controllers.diserver.asked import Refusal


@dataclass(frozen=True)
class Access:
    """The key of the tokens, read for each call: a Secret can change. Without it everybody may call."""

    key_file: Path | None = None

    def expect_token(self, token: str) -> None:
        """Raise Refused unless there is a token, where one is wanted."""
        if self.key_file is not None and not token:
            raise Refusal(
                401,
                "a token is missing: send it as Authorization: Bearer, or as the path /t/<token>/v1alpha1; "
                "a configuration of DI-engine must have no api_version of its own",
            )

    def check(self, uid: str, token: str) -> None:
        """Raise Refused unless `token` is that of the job with this uid."""
        self.expect_token(token)
        if not self.is_of_one(token, (uid,)):
            raise Refusal(403, "the token is not that of this job")

    def is_of_one(self, token: str, uids: Iterable[str]) -> bool:
        """Whether a token is that of one of these jobs. Raises OSError for a key that cannot be read."""
        if self.key_file is None:
            return True
        key = self.key_file.read_bytes().strip()
        return any(is_token_of(key, uid, token) for uid in uids)

    def check_all(self, token: str) -> None:
        """Raise Refused if tokens belong to one job each: listing several jobs is refused then."""
        if self.key_file is not None:
            raise Refusal(
                403 if token else 401, "tokens are bound to one job: name its coordinator or aggregator"
            )
