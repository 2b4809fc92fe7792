"""A parameter server: `python server.py FOLDER`. Its place and its master come from the pod's environment."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from store import Store, serving

from elasticjob.trainer.parameters import Serving

store = Store(Path(sys.argv[1]))
store.folder.mkdir(parents=True, exist_ok=True)
host = os.environ.get("POD_IP", "127.0.0.1")
with serving(store, host, 0) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with Serving(f"{host}:{server.server_address[1]}", store) as master:
        master.wait()
    server.shutdown()
