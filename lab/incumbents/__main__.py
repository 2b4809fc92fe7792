"""`python -m lab.incumbents`: the same stories with incumbents of Kubernetes and with ours, side by side."""

import sys

from lab.incumbents.command import main
from lab.incumbents.oracles import ORACLES

if __name__ == "__main__":
    sys.exit(main(ORACLES))
