"""DIJobs of DI-engine: the kinds, and the pods and services of a job. Data and pure functions."""
