"""Imported by the warm process, from which all agents and workers fork: storage and clocks may misbehave."""

from lab.chaos.life import faults

faults.install()
