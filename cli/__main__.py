"""`python -m elasticjob.cli`: the program for a known interpreter, whatever PATH says."""

from elasticjob.cli.main import main

main()
