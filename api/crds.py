"""The CustomResourceDefinitions of our kinds."""

from __future__ import annotations

from typing import Final

from elasticjob.api.core import POD_TEMPLATE_SPEC, definitions
from elasticjob.api.diengine import aggregatorconfig, dijob
from elasticjob.api.paddle import trainingjob
from elasticjob.api.v1alpha1 import elasticjob, jobresource, scaleplan
from elasticjob.kube.crd.embedded import Detail, embedded_schema
from elasticjob.kube.crd.generate import crd_manifest
from elasticjob.kube.crd.model import Declaration
from elasticjob.kube.objects.kinds import Manifest

DECLARATIONS: Final[tuple[Declaration, ...]] = (
    elasticjob.DECLARATION,
    jobresource.DECLARATION,
    scaleplan.DECLARATION,
    trainingjob.DECLARATION,
    dijob.DECLARATION,
    aggregatorconfig.DECLARATION,
)


def manifest(declaration: Declaration, detail: Detail = Detail.TYPED) -> Manifest:
    """Return the CRD of one kind; `detail` selects how much of the pod template schema it contains."""
    return crd_manifest(
        declaration, {POD_TEMPLATE_SPEC: embedded_schema(POD_TEMPLATE_SPEC, definitions(), detail)}
    )


def manifests(detail: Detail = Detail.TYPED) -> list[Manifest]:
    """Return the CRDs of all kinds."""
    return [manifest(declaration, detail) for declaration in DECLARATIONS]
