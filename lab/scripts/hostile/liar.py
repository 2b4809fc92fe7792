"""A hostile master: its probes succeed, its /metrics are rubbish of every kind, each time another one."""

import os
import random
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHANCE = random.Random(os.environ.get("SEED", ""))
NUMBERS = ("NaN", "+Inf", "-Inf", "1e30", "1e308", "-1", "0", "1e-320", "9" * 400, "0x10", "x", "", "1_0")
NAMES = (
    *("world_nodes", "steps_per_second", "samples_per_second", "goodput_ratio", "nodes", "step", "speed"),
    *("node_cpu_cores", "node_memory_bytes", "node_cpu_configured_cores", "node_memory_configured_bytes"),
)
TEXTS = (
    "liar-worker-0",
    "n" * 300,
    "\0",
    "é\u202e",
    "",
    "a/b",
    "x" * 100_000,
    "\\n",
    'a"b',
    "'; DROP TABLE jobs",
)
HONEST = {
    "world_nodes": "2",
    "steps_per_second": "3.5",
    "samples_per_second": "28",
    "node_memory_bytes": "1e9",
    "node_cpu_cores": "0.5",
}


def labelled(name: str, value: str) -> str:
    """Return a line; the metrics of nodes have labels."""
    if not name.startswith("node"):
        return f"elasticjob_{name} {value}\n"
    node, role = CHANCE.choice(TEXTS), CHANCE.choice(("worker", "ps", "", *TEXTS))
    return f'elasticjob_{name}{{node="{node}",role="{role}",state="running"}} {value}\n'


def metrics() -> bytes:
    """Return plausible metrics of which some values are rubbish."""
    values = dict(HONEST)
    for _ in range(CHANCE.choice((0, 1, 1, 2, 4))):
        values[CHANCE.choice(NAMES)] = CHANCE.choice(NUMBERS)
    lines = "".join(labelled(name, value) for name, value in values.items())
    match CHANCE.randrange(12):
        case 0:
            lines += (
                CHANCE.choice(("elasticjob_step 1\n", 'elasticjob_node_cpu_cores{node="n"} 1\n')) * 200_000
            )
        case 1:
            lines = lines[: CHANCE.randrange(len(lines))]
        case 2:
            return lines.encode() + CHANCE.randbytes(200)
        case 3:
            return b"#" * 9_000_000
        case 4:
            lines += "\0" * 10
    return lines.encode()


class Liar(BaseHTTPRequestHandler):
    """Answers."""

    def do_GET(self) -> None:
        body, status = metrics() if self.path.startswith("/metrics") else b"", 200
        if body:
            time.sleep(CHANCE.choice((0, 0, 0, 0, 0, 0, 0, 1, 8)))
            status = CHANCE.choice((200,) * 20 + (204, 302, 404, 500, 999))
        self.send_response(status)
        if body and CHANCE.random() < 0.1:
            odd = (
                ("Content-Encoding", "gzip"),
                ("Location", "/metrics"),
                ("Content-Length", "5"),
                ("X", "y" * 9000),
            )
            self.send_header(*CHANCE.choice(odd))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer((os.environ["POD_IP"], 50001), Liar).serve_forever()
