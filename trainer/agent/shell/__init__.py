"""The agent's I/O beside its loop: membership in the job, reports, output, and the master's succession."""
