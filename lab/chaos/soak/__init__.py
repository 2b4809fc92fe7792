"""`make soak`: an operator under random faults for ten minutes; see __main__."""
