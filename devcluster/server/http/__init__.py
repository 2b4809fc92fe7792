"""The HTTP surface: routes, verbs and subresources."""
