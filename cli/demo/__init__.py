"""The demo: a job's whole life, on the screen and in a report."""
