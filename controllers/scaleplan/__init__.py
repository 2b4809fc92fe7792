"""ScalePlans → JobResource: requests to change a job once, carried out in order and kept as a record."""
