"""The world outside of the job: the Kubernetes API, Brain, settings."""
