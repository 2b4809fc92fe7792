"""Kubernetes in one process: `async with DevCluster(state) as cluster: … cluster.kubeconfig`."""

from elasticjob.devcluster.cluster import DevCluster
from elasticjob.devcluster.node.heartbeat import VirtualNode
from elasticjob.devcluster.node.images import IMAGES, Image
from elasticjob.devcluster.node.pod.life import Backoff
from elasticjob.devcluster.nodes import StateInUse

__all__ = ["IMAGES", "Backoff", "DevCluster", "Image", "StateInUse", "VirtualNode"]
