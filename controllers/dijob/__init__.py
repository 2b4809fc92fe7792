"""DIJobs of DI-engine: the coordinator, the services of all pods, the status, and the end of a job."""
