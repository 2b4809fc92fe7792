"""Brain: one service per cluster that keeps the history of jobs and learns from it what they should have."""
