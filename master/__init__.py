"""The job master: one process per job, for rendezvous, health, shards, progress and scaling."""
