"""A process that runs controllers, webhooks and leader election, and stops them in order."""
