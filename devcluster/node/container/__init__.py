"""The processes of a container: what they are started with, their volumes, logs and end."""
