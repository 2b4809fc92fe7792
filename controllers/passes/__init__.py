"""What every controller does in a pass: its plan, its rules, its reads and writes, and what causes it."""
