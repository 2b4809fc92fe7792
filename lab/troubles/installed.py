"""Imported by the warm process, from which all agents and workers fork: storage and clocks may misbehave."""

from lab.troubles import faults

faults.install()
