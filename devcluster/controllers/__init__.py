"""The controllers of a dev cluster: scheduler, endpoints, service accounts, volume claims."""
