"""A payload for the node check that needs no torch: alone it waits, with others it exchanges a byte.

The node in $SLOW takes two seconds, that in $CUT reaches no other node. Nobody waits for more than $PATIENCE.
"""

import json
import os
import socket
import sys
import time
from typing import Any

PATIENCE = float(os.environ["PATIENCE"])


def exchange(task: dict[str, Any]) -> None:
    """Have every process reach the first one, and hear from it when all have."""
    place = task["address"], task["port"]
    if task["rank"] == 0:
        with socket.create_server(place) as server:
            server.settimeout(PATIENCE)
            lines = [server.accept()[0] for _ in range(task["size"] - 1)]
            heard = [line.recv(1) for line in lines]
            for line in lines:
                line.sendall(b"1" if all(heard) else b"")
                line.close()
            if not all(heard):
                raise ConnectionError("a peer is gone")
        return
    with connected(place) as line:
        line.sendall(b"1")
        if not line.recv(1):
            raise ConnectionError("a peer is gone")


def connected(place: tuple[str, int]) -> socket.socket:
    """Connect to the first process, which may not listen yet."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection(place, timeout=PATIENCE)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def run(task: dict[str, Any]) -> None:
    """Run one turn with the fault of this node."""
    node = os.environ["ELASTICJOB_NODE"]
    if task["alone"]:
        time.sleep(2 if node == os.environ.get("SLOW") else 0)
    elif node == os.environ.get("CUT"):
        if task["rank"] == 0:
            socket.create_server((task["address"], task["port"])).accept()[0].close()
        else:
            connected((task["address"], task["port"])).close()
        raise ConnectionError("no route to the other node")
    else:
        exchange(task)


for received in sys.stdin:
    began, error = time.perf_counter(), ""
    try:
        run(json.loads(received))
    except OSError as caught:
        error = f"{type(caught).__name__}: {caught}"
    result = {"seconds": time.perf_counter() - began, "error": error, "device": "cpu"}
    print(json.dumps(result), flush=True)
    if error:
        break
