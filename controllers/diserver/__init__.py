"""di-server: coordinators of DIJobs ask it for collectors and learners, and tell which have failed."""
