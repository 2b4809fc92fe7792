"""The operator: controllers of ElasticJobs, JobResources and ScalePlans. Each reads, decides, then writes."""
