"""Commands about jobs: each parses its flags, calls one verb of `elasticjob.client`, and prints."""
