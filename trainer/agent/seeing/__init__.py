"""What an agent observes of its workers and its machine."""
