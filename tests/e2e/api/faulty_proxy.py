# SPDX-License-Identifier: Apache-2.0
"""A way to the API server that answers some requests by itself, as an API server in trouble would, or loses the
answers to requests that were carried out. All others pass, watches as they come.
"""
import collections
import http.client
import http.server
import json
import random
import threading
import urllib.parse
from typing import Any, Optional

from api_server import connect

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_REASONS = {410: "Expired", 429: "TooManyRequests", 503: "ServiceUnavailable"}


class FaultyProxy:
    """Plain HTTP on a loopback address; use as a context.

    While `share` is above 0, so many of all requests meet a fault: of three faults two are refusals, with 429, 503,
    or 410 for what can be too old, and one is a lost answer, if the request was a write. A watch is cut off
    now and then. Leases are spared: who meets many faults in a row there loses the lead, and begins anew as
    another operator would.
    """

    def __init__(self, seed: int) -> None:
        self.share = 0.0
        self.refusals: collections.Counter[tuple[int, str]] = collections.Counter()  # code, resource
        self.lost_answers = 0
        self._random = random.Random(seed)
        self._mu = threading.Lock()
        proxy = self

        class Handler(_Handler):
            owner = proxy
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="faulty-proxy", daemon=True)

    def __enter__(self) -> "FaultyProxy":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def kubeconfig(self) -> str:
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "x",
                           "clusters": [{"name": "c", "cluster": {"server": server}}],
                           "users": [{"name": "u", "user": {}}],
                           "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]})

    def num_refusals(self, code: Optional[int] = None, resource: Optional[str] = None) -> int:
        with self._mu:
            return sum(count for (its_code, its_resource), count in self.refusals.items()
                       if code in (None, its_code) and resource in (None, its_resource))

    def draw(self, method: str, path: str) -> Optional[int]:
        """The code to refuse this request with, 0 to lose its answer, None to let it pass."""
        with self._mu:
            if _resource_of(path) == "leases" or self._random.random() >= self.share:
                return None
            if method != "GET" and self._random.random() < 1 / 3:
                self.lost_answers += 1
                return 0
            is_watch = "watch=" in path
            code = self._random.choice((410, 429, 503) if is_watch else (429, 503))
            self.refusals[code, _resource_of(path)] += 1
            return code

    def cuts_watch(self) -> bool:
        """Asked after each piece of one."""
        with self._mu:
            return self._random.random() < self.share / 20


def _resource_of(path: str) -> str:
    """"pods" of /api/v1/namespaces/n/pods/x."""
    words = urllib.parse.urlsplit(path).path.strip("/").split("/")
    words = words[2:] if words[0] == "api" else words[3:]
    return words[2] if words[0] == "namespaces" and len(words) > 2 else words[0]


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection; the requests of one after the other go over one connection to the API server."""

    owner: FaultyProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._upstream = connect()

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def log_message(self, *_: Any) -> None:
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.owner.draw(self.command, self.path)
        if fault:
            self._refuse(fault)
            return
        try:
            headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP}
            self._upstream.request(self.command, self.path, body or None, headers)
            answer = self._upstream.getresponse()
            if fault == 0:
                answer.read()
                self.close_connection = True
            else:
                self._pass_on(answer)
        except (OSError, http.client.HTTPException):  # either side has gone
            self._upstream.close()
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def _refuse(self, code: int) -> None:
        text = json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": _REASONS[code],
                           "message": "injected", "code": code}).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if code == 429:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(text)

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in _HOP_BY_HOP:
                self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while data := answer.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
            if "watch=" in self.path and self.owner.cuts_watch():
                self.close_connection = True
                self._upstream.close()
                return
        answer.close()  # read1 does not, at the end
        self.wfile.write(b"0\r\n\r\n")
