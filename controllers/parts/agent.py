"""The agent in an image that lacks it: an init container copies it into a volume of the pod."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.common import AGENT, AGENT_PLACE
from elasticjob.kube.objects.kinds import Manifest

SIZE: Final = {"cpu": "100m", "memory": "128Mi"}
"""Of the init container, as requests and limits: it lowers the quality of service of no pod."""
IDENTITY: Final = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile")
"""What the init container shares with the main one: the restricted Pod Security Standard asks each container
for it, in a pod that has none for all."""


def with_agent(image: str, spec: Manifest, main: str) -> Manifest:
    """Return a pod spec with the agent at AGENT_PLACE in its main container, whose name is `main`.

    A template that has the volume already says all of it itself, and stays as it is.
    """
    if any(volume.get("name") == AGENT for volume in spec.get("volumes") or []):
        return spec
    mount = {"name": AGENT, "mountPath": AGENT_PLACE}
    containers: list[Manifest] = spec.get("containers") or []
    of_main = next((each.get("securityContext") for each in containers if each.get("name") == main), None)
    return {
        **spec,
        "volumes": [*(spec.get("volumes") or []), {"name": AGENT, "emptyDir": {}}],
        "initContainers": [_copying(image, mount, of_main or {}), *(spec.get("initContainers") or [])],
        "containers": [
            {
                **container,
                "volumeMounts": [*(container.get("volumeMounts") or []), {**mount, "readOnly": True}],
            }
            if container.get("name") == main
            else container
            for container in containers
        ],
    }


def _copying(image: str, mount: Manifest, of_main: Manifest) -> Manifest:
    return {
        "name": AGENT,
        "image": image,
        "resources": {"requests": SIZE, "limits": SIZE},
        "securityContext": {
            **{field: of_main[field] for field in IDENTITY if field in of_main},
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [mount],
    }
