"""Parameter servers: which of them serve, and how one cluster of them follows another. Pure."""
