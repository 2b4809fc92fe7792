"""A request in RBAC's words, and the command that asks whether it is allowed."""

from __future__ import annotations

import pytest

from elasticjob.kube.asked import ApiRequest

JOBS = "/apis/elastic.iml.github.io/v1alpha1"


@pytest.mark.parametrize(
    ("asked", "words", "command"),
    [
        (
            ApiRequest("GET", f"{JOBS}/namespaces/team/elasticjobs", {"watch": "true"}),
            "watch elasticjobs in namespace team",
            "kubectl auth can-i watch elasticjobs.elastic.iml.github.io -n team",
        ),
        (
            ApiRequest("GET", f"{JOBS}/elasticjobs"),
            "list elasticjobs in all namespaces",
            "kubectl auth can-i list elasticjobs.elastic.iml.github.io -A",
        ),
        (
            ApiRequest("GET", "/api/v1/namespaces/team/pods/digits-worker-0/log"),
            "get pods/log in namespace team",
            "kubectl auth can-i get pods --subresource=log -n team",
        ),
        (
            ApiRequest("PATCH", f"{JOBS}/namespaces/team/elasticjobs/digits/scale"),
            "patch elasticjobs/scale in namespace team",
            "kubectl auth can-i patch elasticjobs.elastic.iml.github.io --subresource=scale -n team",
        ),
        (ApiRequest("GET", "/version"), "GET /version", ""),
    ],
)
def test_a_request_is_told_in_the_words_of_roles(asked: ApiRequest, words: str, command: str) -> None:
    assert (asked.in_words, asked.can_i) == (words, command)
