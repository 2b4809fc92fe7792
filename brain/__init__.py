"""Brain: one service per cluster that keeps the history of jobs, and sizes jobs by it."""
