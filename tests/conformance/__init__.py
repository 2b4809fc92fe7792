"""The same requests to devcluster and to a real API server, side by side.

A probe (`probe.py`) is data: requests in order. `play.py` sends them, `normal.py` takes out of the answers
what
chance decides, `compare.py` tells two answers apart. `golden/` holds what the real server answered.
"""
