"""The kinds of group elastic.iml.github.io, version v1alpha1: one file per kind."""

from __future__ import annotations

from elasticjob.kube.kinds import Manifest


def manifests() -> list[Manifest]:
    """Return the CRDs of all kinds, as config/crd holds them."""
    # the kinds import this package, and only who installs them needs their schemas
    from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
    from elasticjob.api.v1alpha1 import elasticjob, jobresource, scaleplan
    from elasticjob.kube.crd import crd_manifest
    from elasticjob.kube.embedded import Detail, embedded_schema

    embedded = {POD_TEMPLATE_SPEC: embedded_schema(POD_TEMPLATE_SPEC, definitions(), Detail.TYPED)}
    return [crd_manifest(kind.DECLARATION, embedded) for kind in (elasticjob, jobresource, scaleplan)]
