"""The kubelet's next actions for a pod, and the pod's status. Pure."""
