"""The state of a master as frozen values."""
