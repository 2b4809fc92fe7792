"""What goes with what: garbage collection both ways, namespaces, definitions."""

# ruff: noqa: F403, F405 - what a probe is told in
from __future__ import annotations

from tests.conformance.objects import *
from tests.conformance.probe import *

OWNER = config_map("owner", {"x": "1"})
HELD = config_map("owner", {"x": "1"}, finalizers=["example.com/hold"])
CHILD, GRANDCHILD = config_map("child"), config_map("grandchild")
OWN, C, G = f"{MAPS}/owner", f"{MAPS}/child", f"{MAPS}/grandchild"
UID = {"uid": "metadata.uid"}
FAMILY = given(
    post(MAPS, OWNER, take=UID), post(MAPS, owned_by(CHILD, OWNER)), post(MAPS, config_map("free"))
)
BLOCKING = given(post(MAPS, OWNER, take=UID), post(MAPS, owned_by(CHILD, OWNER, block=True)))
META = ("metadata.finalizers", "metadata.deletionGracePeriodSeconds", "metadata.ownerReferences")
NAMESPACE = body("Namespace", "{ns}-b")
N = f"{NAMESPACES}/{{ns}}-b"


def reference(name: str, uid: str) -> Body:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}


def child_of(*owners: Body) -> Step:
    return post(MAPS, config_map("child", ownerReferences=list(owners)), show=META)


PROBES: tuple[Probe, ...] = (
    probe("background", *FAMILY, delete(OWN, propagationPolicy="Background"), get(C, until=404),
          get(f"{MAPS}/free", show=("metadata.name",))),
    probe("no policy", *FAMILY, delete(OWN), get(C, until=404)),
    probe("orphans", *FAMILY, delete(OWN, propagationPolicy="Orphan"), get(OWN, until=404),
          get(C, show=META)),
    probe("foreground", *BLOCKING, delete(OWN, propagationPolicy="Foreground", show=META),
          get(OWN, until=404), get(C)),
    probe(
        "foreground, held by a child",
        *given(
            post(MAPS, OWNER, take=UID),
            post(MAPS, owned_by(config_map("child", finalizers=["example.com/hold"]), OWNER, block=True)),
        ),
        delete(OWN, propagationPolicy="Foreground", show=META),
        get(C, until={"metadata.deletionGracePeriodSeconds": 0}, show=META),
        get(OWN, show=META),
        *given(patch("merge", C, {"metadata": {"finalizers": None}})),
        get(OWN, until=404),
    ),
    probe(
        "foreground, not blocked",
        *given(
            post(MAPS, OWNER, take=UID),
            post(MAPS, owned_by(config_map("child", finalizers=["example.com/hold"]), OWNER)),
        ),
        delete(OWN, propagationPolicy="Foreground", show=META),
        get(OWN, until=404),
        *given(patch("merge", C, {"metadata": {"finalizers": None}})),
    ),
    probe("three generations in the background", *FAMILY, get(C, take=UID, show=()),
          *given(post(MAPS, owned_by(GRANDCHILD, CHILD))), delete(OWN, show=("status",)), get(G, until=404)),
    probe("two owners, one goes", *FAMILY, get(f"{MAPS}/free", take={"other": "metadata.uid"}, show=()),
          patch("json", C,
                [{"op": "add", "path": "/metadata/ownerReferences/-", "value": reference("free", "{other}")}],
                show=()), *given(delete(OWN)), get(C, until={"metadata.ownerReferences.1": None}, show=META)),
    probe("an owner that never was", child_of(reference("none", "none-such")), get(C, until=404)),
    probe("an owner of another uid", *given(post(MAPS, OWNER)), child_of(reference("owner", "other")),
          get(C, until=404)),
    probe(
        "a policy changes its mind",
        *given(post(MAPS, HELD, take=UID), post(MAPS, owned_by(CHILD, OWNER, block=True))),
        delete(OWN, propagationPolicy="Background", show=META),
        delete(OWN, propagationPolicy="Foreground", show=META),
        get(C, until=404),
        *given(patch("merge", OWN, {"metadata": {"finalizers": None}})),
        get(OWN, until=404),
    ),
    probe(
        "orphans of what is held",
        *given(post(MAPS, HELD, take=UID), post(MAPS, owned_by(CHILD, OWNER))),
        delete(OWN, propagationPolicy="Orphan", show=META),
        get(C, until={"metadata.ownerReferences": None}, show=META),
        get(OWN, until={"metadata.finalizers.0": "example.com/hold"}, show=("metadata.finalizers.0",)),
        *given(patch("merge", OWN, {"metadata": {"finalizers": None}})),
        get(C, show=META),
    ),
    probe("a finalizer is taken and the owner goes",
          *given(post(MAPS, HELD, take=UID), post(MAPS, owned_by(CHILD, OWNER)), delete(OWN)),
          get(C, show=META), *given(patch("merge", OWN, {"metadata": {"finalizers": None}})),
          get(C, until=404)),
    probe("a namespace", post(NAMESPACES, NAMESPACE), get(N, show=("status",))),
    probe("a namespace goes", *given(post(NAMESPACES, NAMESPACE), post(f"{N}/configmaps", config_map("a"))),
          delete(N, show=("status.phase", "spec", "metadata.generation")), get(N, until=404),
          get(f"{N}/configmaps/a")),
    probe(
        "a namespace that is going",
        *given(
            post(NAMESPACES, NAMESPACE),
            post(f"{N}/configmaps", config_map("a", finalizers=["example.com/hold"])),
            delete(N),
        ),
        post(f"{N}/configmaps", config_map("b")),
        get(f"{N}/configmaps/a", until={"metadata.deletionGracePeriodSeconds": 0}, show=META),
        get(N, show=("status.phase", "spec")),
        *given(patch("merge", f"{N}/configmaps/a", {"metadata": {"finalizers": None}})),
        get(N, until=404),
    ),
    probe("a namespace for ever", delete(f"{NAMESPACES}/default")),
    probe("a namespace with a bad name", post(NAMESPACES, {"metadata": {"name": "A.b"}})),
    probe("what is in a new namespace", *given(post(NAMESPACES, NAMESPACE)), get(f"{N}/pods")),
    probe("a controller reference", *given(post(MAPS, OWNER, take=UID)),
          post(MAPS, owned_by(CHILD, OWNER, controller=True, block=True),
               show=("metadata.ownerReferences", "metadata.managedFields"))),
    probe("an owner twice", *given(post(MAPS, OWNER, take=UID)),
          child_of(*[reference("owner", "{uid}")] * 2).but(show=("metadata.ownerReferences",))),
    probe("deletecollection of owners", *FAMILY,
          delete(MAPS, fieldSelector="metadata.name=owner", show=("kind",)), get(C, until=404)),
    probe("a service account's namespace",
          get(f"{CORE}/serviceaccounts/default", show=("metadata.name", "kind"))),
)  # fmt: skip
