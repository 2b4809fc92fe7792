"""Resource usage of processes: cores, memory and waits, from /proc and their cgroup."""
