"""What processes use: cores, memory, and what they wait for, from /proc and their cgroup."""
