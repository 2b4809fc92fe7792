"""One module for each command: its options, its help, and the program that it starts."""
