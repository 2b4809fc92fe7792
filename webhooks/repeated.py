"""Members of keyed lists that are there twice, refused in a sentence.

The server refuses them, too, before it asks a validating webhook: with a second line about rules that it has
not checked, whose path is `<nil>`. A mutating webhook is asked first.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.core.shape import repeated_keys
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.webhook.review import Refusal


def refuse_repeated(new: Mapping[str, Manifest], old: Mapping[str, Manifest]) -> None:
    """Raise Refusal for what the templates `new`, by path, repeat; what `old` has already is let through."""
    if found := [
        problem
        for path, template in new.items()
        if template != old.get(path)
        for problem in repeated_keys(path, template, POD_TEMPLATE_SPEC)
    ]:
        raise Refusal(found)
