"""The model that all parts of the server share: resources, requests, names, errors, and the store."""
