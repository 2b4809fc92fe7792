"""`elasticjob convert`: manifests and command lines of other systems as ElasticJobs."""
