"""The kinds and the messages: data and pure functions, shared by all programs."""
