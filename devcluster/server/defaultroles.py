"""The roles that every cluster has from the start, and who has them: those of people and of plain clients.

Rules are rows (verbs, groups, resources), each a text of words; `core` is the group without a name.
"""

from __future__ import annotations

from collections.abc import Iterator

from elasticjob.devcluster.server.store import Manifest

GROUP = "rbac.authorization.k8s.io"
_API_VERSION = f"{GROUP}/v1"
_AGGREGATE = f"{GROUP}/aggregate-to-"
_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = "create delete deletecollection get list patch update watch"
_HEALTH = "/healthz /livez /readyz /version /version/"
_WORKLOADS = "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale"
_Rows = tuple[tuple[str, str, str], ...]

_VIEW: _Rows = (
    (
        _READ,
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
        "replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
    ),
    (
        _READ,
        "core",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
        "resourcequotas resourcequotas/status",
    ),
    (_READ, "core", "namespaces"),
    (_READ, "core events.k8s.io", "events"),
    (_READ, "discovery.k8s.io", "endpointslices"),
    (
        _READ,
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
        "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale "
        "statefulsets/status",
    ),
    (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (
        _READ,
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
        "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
        "replicationcontrollers/scale",
    ),
    (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
)
_EDIT: _Rows = (
    (_READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    ("impersonate", "core", "serviceaccounts"),
    (_WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("create", "core", "pods/eviction"),
    (
        _WRITE,
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
        "serviceaccounts services services/proxy",
    ),
    ("create", "core", "serviceaccounts/token"),
    (_WRITE, "core events.k8s.io", "events"),
    (_WRITE, "apps", f"{_WORKLOADS} statefulsets statefulsets/scale"),
    (_WRITE, "autoscaling", "horizontalpodautoscalers"),
    (_WRITE, "batch", "cronjobs jobs"),
    (
        _WRITE,
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "
        "replicasets/scale replicationcontrollers/scale",
    ),
    (_WRITE, "policy", "poddisruptionbudgets"),
    (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    (_ALL, "coordination.k8s.io", "leases"),
    (_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
)
_ADMIN: _Rows = (
    ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    (_ALL, GROUP, "rolebindings roles"),
)
_BASIC: _Rows = (
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
)
_EVERYTHING: _Rows = (("*", "*", "*"),)

# name → rows of its rules, the paths that it may get
_ROLES: tuple[tuple[str, _Rows, str], ...] = (
    ("cluster-admin", _EVERYTHING, "*"),
    ("system:basic-user", _BASIC, ""),
    (
        "system:discovery",
        (),
        "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
    ),
    ("system:public-info-viewer", (), _HEALTH),
    (
        "system:service-account-issuer-discovery",
        (),
        "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks "
        "/openid/v1/jwks/",
    ),
    ("system:aggregate-to-view", _VIEW, ""),
    ("system:aggregate-to-edit", _EDIT, ""),
    ("system:aggregate-to-admin", _ADMIN, ""),
)
_MONITORED = "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"
# people's roles, each gathered from those that are labelled for it
_GATHERED = (("view", "edit"), ("edit", "admin"), ("admin", ""))
_HELD = {
    "cluster-admin": ("system:masters",),
    "system:basic-user": ("system:authenticated",),
    "system:discovery": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:monitoring": ("system:monitoring",),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
}


def cluster_roles() -> Iterator[Manifest]:
    """Those with rules of their own first; those that gather have none yet."""
    for name, rows, paths in _ROLES:
        verb = "*" if paths == "*" else "get"
        of_paths = [{"verbs": [verb], "nonResourceURLs": paths.split()}] if paths else []
        _, _, gathers = name.partition("system:aggregate-to-")
        yield _object("ClusterRole", name, gathers) | {"rules": [*_rules(rows), *of_paths]}
    monitored = {"verbs": ["get"], "nonResourceURLs": _MONITORED.split()}
    metrics = _rules((("get", "core", "nodes/metrics"),))
    yield _object("ClusterRole", "system:monitoring") | {"rules": [monitored, *metrics]}
    for name, also in _GATHERED:
        selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
        yield _object("ClusterRole", name, also) | {"aggregationRule": {"clusterRoleSelectors": [selector]}}


def cluster_role_bindings() -> Iterator[Manifest]:
    for name, groups in _HELD.items():
        subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        yield _object("ClusterRoleBinding", name) | {"subjects": subjects, "roleRef": reference}


def _object(kind: str, name: str, gathered_by: str = "") -> Manifest:
    labels = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    labels |= {f"{_AGGREGATE}{gathered_by}": "true"} if gathered_by else {}
    annotations = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata}


def _rules(rows: _Rows) -> list[Manifest]:
    return [
        {
            "verbs": verbs.split(),
            "apiGroups": ["" if group == "core" else group for group in groups.split()],
            "resources": resources.split(),
        }
        for verbs, groups, resources in rows
    ]
