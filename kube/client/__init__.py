"""Requests to the API server: configuration, transport, typed client, fence, Event recorder."""
