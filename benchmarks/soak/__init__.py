"""`make soak`: an operator in bad weather for ten minutes; see __main__."""
