"""What of the state outlives a master: snapshots, their form, and who is the next master."""
