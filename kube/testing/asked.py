"""Which requests a rule is for."""

from __future__ import annotations

from collections.abc import Callable

from elasticjob.kube.asked import ApiRequest


def asking(
    verb: str = "", resource: str = "", *, name: str = "", agent: str = "", path: str = ""
) -> Callable[[ApiRequest], bool]:
    """Whether a request is of this kind; "" = any. `agent` and `path` need only be part of the request's.

    `verb` may name several, `"list watch"`; `"write"` stands for all that change something.
    """
    verbs = frozenset(verb.split())

    def matches(asked: ApiRequest) -> bool:
        return (
            (not verbs or asked.verb in verbs or ("write" in verbs and asked.writes))
            and resource in ("", asked.resource)
            and name in ("", asked.name)
            and agent in asked.user_agent
            and path in asked.path
        )

    return matches
