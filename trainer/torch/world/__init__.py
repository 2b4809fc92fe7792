"""The process groups of one world, and models that are divided or whole in it."""
