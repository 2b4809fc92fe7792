"""The training loop over changing worlds; `torch` and `jax` say what a state is, and a world."""
