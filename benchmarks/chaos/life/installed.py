"""Imported by the warm process, from which all agents and workers fork: storage and clocks may misbehave."""

from benchmarks.chaos.life import faults

faults.install()
