"""Gangs: pods of a job that a scheduler places together, by whichever API the cluster has."""
