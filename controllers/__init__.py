"""The operator: controllers that make ElasticJobs of a cluster real. Each reads, decides, then writes."""
