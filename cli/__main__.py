"""`python -m elasticjob.cli`: the program under a given interpreter, independent of PATH."""

from elasticjob.cli.main import main

main()
