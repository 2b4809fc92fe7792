"""Authentication and authorization: tokens, attributes of a request, RBAC, access reviews."""
