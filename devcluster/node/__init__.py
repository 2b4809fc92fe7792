"""The process kubelet: pods as groups of processes on this machine."""
