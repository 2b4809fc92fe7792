"""The program `elasticjob`: one module per command, and what joins programs on one machine."""
