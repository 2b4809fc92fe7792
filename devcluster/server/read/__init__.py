"""Lists, watches, tables, discovery and OpenAPI."""
