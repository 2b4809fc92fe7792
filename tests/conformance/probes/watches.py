"""Watches: from which version, selectors, bookmarks, initial events, versions that are gone or to come."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

A = config_map("a", {"x": "1"}, labels={"set": "1"})
MADE = post(MAPS, A, take=TAKE, show=())
SET = {"labelSelector": "set"}
SHORT = ("metadata.name", "data", "metadata.resourceVersion")
LIFE = given(
    MADE,
    patch("merge", f"{MAPS}/a", {"data": {"x": "2"}}),
    patch("merge", f"{MAPS}/a", {"data": {"x": "3"}}),
    delete(f"{MAPS}/a"),
    post(MAPS, config_map("b", labels={"set": "1"})),
)
FLAGS = {"allowWatchBookmarks": "true", "bookmarks": True}
INITIAL = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", **FLAGS, **SET}

PROBES: tuple[Probe, ...] = (
    probe("from a version", *LIFE, watch(MAPS, 4, resourceVersion="{rv}", **SET)),
    probe("from a version, short", *LIFE, watch(MAPS, 4, resourceVersion="{rv}", **SET, show=SHORT)),
    probe("from nothing", *given(MADE), watch(MAPS, 1, **SET)),
    probe("from zero", *given(MADE), watch(MAPS, 1, resourceVersion="0", **SET, show=SHORT)),
    probe("of one object", *LIFE,
          watch(MAPS, 3, resourceVersion="{rv}", fieldSelector="metadata.name=a", show=SHORT)),
    probe("of one object by its path", *given(MADE),
          watch("/api/v1/watch/namespaces/{ns}/configmaps/a", 1, show=SHORT)),
    probe("live", *given(MADE),
          watch(MAPS, 3, resourceVersion="{rv}", **SET, show=SHORT,
                meanwhile=given(patch("merge", f"{MAPS}/a", {"data": {"x": "2"}}), delete(f"{MAPS}/a"),
                                post(MAPS, A)))),
    probe(
        "into a selector and out",
        *given(
            MADE,
            patch("merge", f"{MAPS}/a", {"metadata": {"labels": {"in": "1"}}}),
            patch("merge", f"{MAPS}/a", {"data": {"x": "2"}}),
            patch("merge", f"{MAPS}/a", {"metadata": {"labels": {"in": None}}}),
            patch("merge", f"{MAPS}/a", {"data": {"x": "3"}}),
        ),
        watch(MAPS, 3, resourceVersion="{rv}", labelSelector="in=1"),
    ),
    probe("a finalizer goes",
          *given(post(MAPS, config_map("a", labels={"set": "1"}, finalizers=["x.example.com/y"]), take=TAKE),
                 delete(f"{MAPS}/a"), patch("merge", f"{MAPS}/a", {"metadata": {"finalizers": None}})),
          watch(MAPS, 2, resourceVersion="{rv}", **SET)),
    probe("no event without a change",
          *given(MADE, patch("merge", f"{MAPS}/a", {"data": {"x": "1"}}),
                 patch("merge", f"{MAPS}/a", {"data": {"x": "2"}})),
          watch(MAPS, 1, resourceVersion="{rv}", **SET, show=SHORT)),
    probe(
        "a version too old",
        *defined(),  # whose history begins later than 1 on any server, however young
        watch(THINGS, 1, resourceVersion="1", show=("code",)),
    ),
    probe("a version of the future", watch(MAPS, 1, resourceVersion="99999999999", timeoutSeconds="1")),
    probe("initial events", *given(MADE, post(MAPS, config_map("b", labels={"set": "1"}))),
          watch(MAPS, 3, **INITIAL)),
    probe("initial events of nothing", watch(MAPS, 1, **INITIAL)),
    probe("initial events, then more", *given(MADE),
          watch(MAPS, 3, **INITIAL, show=SHORT,
                meanwhile=given(patch("merge", f"{MAPS}/a", {"data": {"x": "2"}})))),
    probe("initial events without a match", watch(MAPS, 1, sendInitialEvents="true", **FLAGS)),
    probe("initial events without bookmarks", *given(MADE),
          watch(MAPS, 1, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", **SET, show=SHORT)),
    probe("no initial events", *given(MADE),
          watch(MAPS, 1, sendInitialEvents="false", resourceVersionMatch="NotOlderThan", **SET, show=SHORT,
                meanwhile=given(patch("merge", f"{MAPS}/a", {"data": {"x": "2"}})))),
    probe("a bookmark before the end", *given(MADE),
          watch(MAPS, 1, resourceVersion="{rv}", **FLAGS, **SET, timeoutSeconds="10",
                show=("kind", "apiVersion", "metadata.annotations"))),
    probe("watch by another word", *given(MADE), get(MAPS, watch="false", **SET, show=("kind",))),
    probe("of tables", *given(MADE, patch("merge", f"{MAPS}/a", {"data": {"x": "2"}})),
          watch(MAPS, 2, **SET, resourceVersion="{rv}", accept=TABLE,
                meanwhile=given(patch("merge", f"{MAPS}/a", {"data": {"x": "3"}})))),
    probe("of metadata", *given(MADE, patch("merge", f"{MAPS}/a", {"data": {"x": "2"}})),
          watch(MAPS, 1, **SET, resourceVersion="{rv}", accept=PARTIAL)),
    probe(
        "of custom resources",
        *defined(),
        *given(
            post(THINGS, thing("one", {"replicas": 1}), take=TAKE),
            patch("merge", THING, {"spec": {"replicas": 2}}),
            patch("merge", f"{THING}/status", {"status": {"phase": "x"}}),
            delete(THING),
        ),
        watch(THINGS, 3, resourceVersion="{rv}"),
    ),
    probe("of custom resources, initial events", *stored({"replicas": 1}),
          watch(THINGS, 2, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", **FLAGS,
                show=("metadata.name", "metadata.annotations"))),
    probe("before the definition is there", get(THINGS), watch(THINGS, 1),
          post(CRDS, definition(), show=("metadata.name",)), get(THINGS, until=200, show=("kind", "items"))),
)  # fmt: skip
