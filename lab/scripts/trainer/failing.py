"""A script that ends at once, badly."""

import sys

print("nothing to see", flush=True)
if sys.argv[1:] == ["exit"]:
    sys.exit(3)
raise ValueError("no such file: data.csv")
