"""Stands in for Prometheus: answers the scheduler's query from loads.json, read anew each time.

python prometheus.py [PORT [FILE]]; loads.json holds percents of CPU and memory by node.
"""

import json
import re
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 9090
FILE = Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).with_name("loads.json"))


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
        result = []
        for node, (cpu, memory) in json.loads(FILE.read_text()).items():
            for label, what in re.findall(r'"((cpu|memory)/\d+)"', query):
                percent = cpu if what == "cpu" else memory
                metric = {"instance": f"{node}:9100", "hekla": label}
                result.append({"metric": metric, "value": [0, str(percent)]})
        data = {"resultType": "vector", "result": result}
        body = json.dumps({"status": "success", "data": data}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = HTTPServer(("127.0.0.1", PORT), Handler)
print(f"http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
