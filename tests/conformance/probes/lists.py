"""Lists: selectors, pages, versions, forms."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

SELECTED = {"labelSelector": "set"}
SIX = given(
    *(
        post(MAPS, config_map(name, labels={"app": name, "set": "1", "odd": str(index % 2)}))
        for index, name in enumerate("abcdef")
    )
)
NAMES = ("items.0.metadata.name", "items.1.metadata.name", "items.2.metadata.name", "items.3.metadata.name")


def selected(name: str, labels: str, *more: Step) -> Probe:
    return probe(f"label selector: {name}", *SIX, get(MAPS, labelSelector=labels, show=NAMES), *more)


def by_field(name: str, fields: str, path: str = MAPS) -> Probe:
    return probe(f"field selector: {name}", *SIX, get(path, fieldSelector=fields, show=NAMES))


IS_READY = '.status.conditions[?(@.type=="Ready")].status'
PAGE = ("metadata", *NAMES)

PROBES: tuple[Probe, ...] = (
    probe("an empty list", get(SECRETS, labelSelector="none")),
    probe("a list of two",
          *given(post(SECRETS, {"metadata": {"name": "b"}}), post(SECRETS, {"metadata": {"name": "a"}})),
          get(SECRETS)),
    selected("equal", "app=a"),
    selected("equal twice", "app==a,set=1"),
    selected("unequal", "app!=a,set"),
    selected("in", "app in (a, b)"),
    selected("not in", "app notin (a,b),set"),
    selected("exists", "set"),
    selected("does not exist", "!app,set"),
    selected("more than", "odd>0,set"),
    selected("less than", "odd<1,set"),
    selected("nothing", "app=none"),
    selected("no selector at all", "app in ("),
    selected("a bad key", "-=1"),
    selected("a bad value", "a=b c"),
    by_field("the name", "metadata.name=a"),
    by_field("not the name", "metadata.name!=a,metadata.name!=kube-root-ca.crt"),
    by_field("another namespace", "metadata.namespace=other"),
    by_field("an unknown field", "data.x=1"),
    by_field("nonsense", "metadata.name"),
    probe(
        "field selector: pods",
        *given(post(PODS, pod("p")), post(PODS, pod("q", nodeName="n"))),
        get(PODS, fieldSelector="spec.nodeName=n", show=NAMES),
        get(PODS, fieldSelector="spec.nodeName=", show=NAMES),
        get(PODS, fieldSelector="status.phase=Pending", show=NAMES),
        get(PODS, fieldSelector="status.phase!=Pending", show=NAMES),
        get(PODS, fieldSelector="spec.image=x", show=NAMES),
    ),
    probe(
        "field selector: custom resources",
        *defined(selectableFields=[{"jsonPath": ".spec.mode"}]),
        *given(post(THINGS, thing("one", {"mode": "fast"})), post(THINGS, thing("two", {"mode": "slow"}))),
        get(THINGS, fieldSelector="spec.mode=slow", show=NAMES),
        get(THINGS, fieldSelector="spec.note=x", show=NAMES),
        get(THINGS, fieldSelector="metadata.name=one", show=NAMES),
    ),
    probe("pages", *SIX, get(MAPS, **SELECTED, limit=2, show=PAGE, take={"next": "metadata.continue"}),
          get(MAPS, **SELECTED, limit=3, continue_="{next}", show=PAGE, take={"next": "metadata.continue"}),
          get(MAPS, **SELECTED, limit=3, continue_="{next}", show=PAGE)),
    probe("pages without a selector", *SIX, get(MAPS, limit=2, show=PAGE, take={"next": "metadata.continue"}),
          get(MAPS, limit=4, continue_="{next}", show=PAGE, take={"next": "metadata.continue"}),
          get(MAPS, continue_="{next}", show=PAGE)),
    probe("pages are of one moment", *SIX, get(MAPS, limit=2, show=PAGE, take={"next": "metadata.continue"}),
          given(delete(f"{MAPS}/d"), post(MAPS, config_map("cc")),
                patch("merge", f"{MAPS}/e", {"metadata": {"labels": {"new": "1"}}})),
          get(MAPS, limit=9, continue_="{next}", show=(*NAMES, "items.2.metadata.labels"))),
    probe("a limit that fits exactly", *SIX, get(MAPS, **SELECTED, limit=6, show=("metadata",))),
    probe("a limit of nothing", *SIX, get(MAPS, **SELECTED, limit=0, show=("metadata",))),
    probe("a limit below nothing", get(MAPS, limit="-1", show=("metadata",))),
    probe("a token with a version", *SIX, get(MAPS, limit=2, show=(), take={"next": "metadata.continue"}),
          get(MAPS, limit=2, continue_="{next}", resourceVersion="5")),
    probe("any version", *SIX, get(MAPS, **SELECTED, resourceVersion="0", show=NAMES)),
    probe("a version of the past", *SIX, get(MAPS, **SELECTED, resourceVersion="1", show=NAMES)),
    probe("a version of the future", get(MAPS, resourceVersion="99999999999")),
    probe("an object of the future", *SIX, get(f"{MAPS}/a", resourceVersion="99999999999")),
    probe("a version exactly", *SIX,
          post(MAPS, config_map("z", labels={"set": "1"}), take={"rv": "metadata.resourceVersion"}, show=()),
          *given(delete(f"{MAPS}/a")),
          get(MAPS, **SELECTED, resourceVersion="{rv}", resourceVersionMatch="Exact", show=NAMES)),
    probe("a match without a version", get(MAPS, resourceVersionMatch="Exact")),
    probe("not older than", *SIX,
          get(MAPS, **SELECTED, resourceVersion="1", resourceVersionMatch="NotOlderThan", show=NAMES)),
    probe("all namespaces", *SIX,
          get("/api/v1/configmaps", fieldSelector="metadata.namespace={ns},metadata.name=a", show=NAMES)),
    probe("a list by path of one namespace that is no namespace", get(f"{NAMESPACES}/none-such/configmaps")),
    probe("a table", *given(post(SECRETS, {"metadata": {"name": "a"}, "stringData": {"x": "1"}})),
          get(SECRETS, accept=TABLE)),
    probe("a table of one", *given(post(MAPS, config_map("a"))), get(f"{MAPS}/a", accept=TABLE)),
    probe("a table without objects", *given(post(MAPS, config_map("a"))),
          get(MAPS, accept=TABLE, includeObject="None", labelSelector="!x", fieldSelector="metadata.name=a")),
    probe("a table with whole objects", *given(post(MAPS, config_map("a", {"x": "1"}))),
          get(f"{MAPS}/a", accept=TABLE, includeObject="Object")),
    probe("a table of pods", *given(post(PODS, pod("p"))),
          get(PODS, accept=TABLE, show=("columnDefinitions", "rows.0.cells"))),
    probe(
        "a table of custom resources",
        *defined(
            additionalPrinterColumns=[
                {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1,
                 "description": "how"},
                {"name": "Ready", "type": "string", "jsonPath": IS_READY},
                {"name": "When", "type": "date", "jsonPath": ".spec.when"},
            ]
        ),
        *given(
            post(THINGS, thing("one", {"replicas": 2})),
            patch("merge", f"{THING}/status", {"status": conditions(Ready="True")}),
        ),
        get(THINGS, accept=TABLE),
    ),
    probe("a table of custom resources without columns", *stored({}),
          get(THINGS, accept=TABLE)),
    probe("a table of what is not there", get(f"{MAPS}/a", accept=TABLE)),
    probe("only metadata of a list", *SIX,
          get(MAPS, accept=PARTIAL.replace("PartialObjectMetadata", "PartialObjectMetadataList"),
              fieldSelector="metadata.name=a")),
    probe("only metadata of one", *SIX, get(f"{MAPS}/a", accept=PARTIAL)),
    probe("deletecollection", *SIX, delete(MAPS, labelSelector="odd=1", show=("kind", *NAMES)),
          get(MAPS, **SELECTED, show=NAMES)),
    probe("a dry deletecollection", *SIX,
          delete(MAPS, labelSelector="odd=1", dryRun="All", show=("kind", *NAMES)),
          get(MAPS, **SELECTED, show=NAMES)),
    probe("deletecollection with finalizers",
          *given(post(MAPS, config_map("a", labels={"set": "1"}, finalizers=["x.example.com/y"]))),
          delete(MAPS, **SELECTED, show=("kind", *NAMES)), get(f"{MAPS}/a", show=("metadata.finalizers",)),
          *given(patch("merge", f"{MAPS}/a", {"metadata": {"finalizers": None}}))),
)  # fmt: skip
