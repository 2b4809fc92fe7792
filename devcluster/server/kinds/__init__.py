"""The built-in kinds: resources, defaults and checks."""
