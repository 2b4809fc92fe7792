"""The kinds of jobs that a queue admits, a module each."""
