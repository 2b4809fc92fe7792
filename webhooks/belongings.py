"""Objects of other jobs are looked up at the API server, after all other checks of a write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from elasticjob.api.belongings import foreign
from elasticjob.kube.objects.kinds import Kind
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.objects.views import Object, ObjectMeta
from elasticjob.kube.webhook.review import Reader, Review

T = TypeVar("T")


def guard(
    validate: Callable[[Review[T]], Sequence[Problem]],
) -> Callable[[Review[T], Reader], Awaitable[Sequence[Problem]]]:
    """Return `validate`, which also refuses templates that name what was made for another job."""

    async def checked(review: Review[T], reader: Reader) -> Sequence[Problem]:
        found = validate(review)
        if review.new is None or found:
            return found

        async def find(kind: Kind[Any], name: str) -> ObjectMeta:
            there = await reader.find(replace(kind, model=Object), name, review.namespace)
            return there.metadata if there else ObjectMeta()

        return await foreign(review.new, find, old=review.old)

    return checked
