"""Which records each worker takes in each step, whatever trains on them."""
