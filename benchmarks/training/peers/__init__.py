"""Programs of the peers, each run in the peer's own environment: clients that load its master, its nodes."""
