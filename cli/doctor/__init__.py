"""What is wrong with a cluster or a job: sentences, and the commands that mend it."""
