"""Rules for one node: exit reasons, relaunches and back-off, drains, growth after out of memory."""
