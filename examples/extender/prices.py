"""A policy behind HTTP: nodes cost money, the cheapest first, and some cost too much.

python prices.py [PORT]
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

PRICES = {"sim-00000": 9, "sim-00001": 3, "sim-00002": 1}


def answer(verb, asked):
    if verb == "prioritize":
        return {"nodeScore": {n["Name"]: 100 / PRICES[n["Name"]] for n in asked["nodes"]}}
    if PRICES[asked["node"]["Name"]] > 5:
        return {"status": "node(s) cost too much", "code": 1}
    return {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps(answer(self.path.rpartition("/")[2], asked)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = HTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8888), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
