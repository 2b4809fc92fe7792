"""ScalePlans → JobResource: commands to change a job once, in order, kept as a record."""
