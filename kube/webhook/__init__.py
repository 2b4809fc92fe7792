"""Admission webhooks: the server, its request handlers, reviews, and their registration."""
