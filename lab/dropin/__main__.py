"""`python -m lab.dropin`: the same stories with python, torchrun and `elasticjob run`, side by side."""

import sys

from lab.dropin.compare import ORACLE
from lab.incumbents.command import main

if __name__ == "__main__":
    sys.exit(main([ORACLE]))
