"""The report of the demo: one HTML page with plots of loss, speed, workers and goodput."""
