"""ElasticJob → its master, services, rights and JobResource, and the job's status."""
