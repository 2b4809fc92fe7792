"""Pieces of the objects that are made for a job: names, owners, environment, gangs, frameworks."""
