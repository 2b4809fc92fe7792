"""The ledger of shards: which ranges of a dataset are done, on lease, or to be dealt."""
