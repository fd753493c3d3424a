# SPDX-License-Identifier: Apache-2.0
"""An API server that answers the operator with anything: one attack changes a list or a watch, then the server is
honest again and the operator has to list anew. Leases stay honest, so that it keeps leading."""
import contextlib
import http.server
import json
import os
import pathlib
import random
import threading
import urllib.parse
from typing import Any, Callable, Iterator, Optional

import job
from rules import ANSWERED, Table, Target

TABLE = Table("operator", "docs/security.md")
RULES = TABLE.rules
OPERATOR = os.path.abspath(os.environ.get("PUSHPULL_OPERATOR_BIN", "build/release/pushpull-operator"))
# Twice the longest pause between two tries.
_WAIT_SECONDS = 90.0 * job.PATIENCE
_HUGE_BYTES = 64 << 20
_current: Optional["FakeApi"] = None

Wrong = Callable[["Request"], None]


class Request(http.server.BaseHTTPRequestHandler):
    """One request of the operator."""
    protocol_version = "HTTP/1.1"
    server: "FakeApi"

    def log_message(self, format: str, *arguments: Any) -> None:  # pylint: disable=redefined-builtin
        """Says nothing."""

    def answer(self, body: bytes, status: int = 200, length: Optional[int] = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        if length is not None:
            self.close_connection = True

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the operator has hung up
            super().handle()

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def do_GET(self) -> None:  # pylint: disable=invalid-name
        path = urllib.parse.urlsplit(self.path)
        if "/leases" in path.path:
            return self._get_lease()
        is_watch = "watch=" in path.query
        wrong = self.server.take_wrong(is_watch)
        if wrong is not None:
            return wrong(self)
        self.server.count_honest()
        if is_watch:
            return self._watch()
        self.answer(json.dumps({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
                                "items": []}).encode())

    def _watch(self) -> None:
        """Open until an attack begins."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.close_connection = True
        # Progress, or the operator would wait longer before every list.
        self.wfile.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"2"}}}\n')
        if self.server.await_attack():
            self.wfile.write(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n')

    def _get_lease(self) -> None:
        if self.server.lease is None:
            return self.answer(b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}', 404)
        self.answer(self.server.lease)

    def _take(self) -> None:
        body = self._body()
        if "/leases" in self.path and self.command in ("POST", "PUT"):
            lease = json.loads(body)
            self.server.versions += 1
            lease["metadata"]["resourceVersion"] = str(self.server.versions)
            body = self.server.lease = json.dumps(lease).encode()
        self.answer(body, 201 if self.command == "POST" else 200)

    do_POST = do_PUT = do_PATCH = do_DELETE = _take


class FakeApi(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.lease: Optional[bytes] = None
        self.versions = 0
        self._changed = threading.Condition()
        self._wrong: Optional[Wrong] = None
        self._wants_watch = False
        self._left = 0
        self._num_attacks = 0
        self._num_honest = 0
        self._num_before = 0  # of the honest answers, when the last wrong one was given
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An operator that hangs up is none."""

    def take_wrong(self, is_watch: bool) -> Optional[Wrong]:
        with self._changed:
            if self._left == 0 or is_watch != self._wants_watch:
                return None
            self._left -= 1
            # Here, not where the attack waits: the operator's next request may come before that goes on.
            self._num_before = self._num_honest
            self._changed.notify_all()
            return self._wrong

    def count_honest(self) -> None:
        with self._changed:
            self._num_honest += 1
            self._changed.notify_all()

    def await_attack(self) -> bool:
        """Whether it is on lists: they are to be asked for anew."""
        with self._changed:
            seen = self._num_attacks
            self._changed.wait_for(lambda: self._num_attacks != seen or self._left > 0, 600)
            return not self._wants_watch

    def await_list(self) -> None:
        self._await(lambda: self._num_honest > 0, "the operator asks for no list")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        if not self._changed.wait_for(condition, _WAIT_SECONDS):
            raise AssertionError(what)

    def attack(self, wrong: Wrong, wants_watch: bool) -> str:
        """ANSWERED when the operator lists or watches again after it."""
        with self._changed:
            self._wrong, self._wants_watch, self._left = wrong, wants_watch, 1
            self._num_attacks += 1  # ends the watches
            self._changed.notify_all()
            self._await(lambda: self._left == 0, "the operator asks no more")
            self._await(lambda: self._num_honest > self._num_before, "the operator asks for nothing after it")
        return ANSWERED


@contextlib.contextmanager
def operating(jobs: job.Jobs) -> Iterator[job.Program]:
    """The operator with a fake API server."""
    global _current  # pylint: disable=global-statement
    folder = pathlib.Path(jobs.folder)
    api = FakeApi()
    kubeconfig = {"apiVersion": "v1", "kind": "Config", "current-context": "c",
                  "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{api.server_address[1]}"}}],
                  "users": [{"name": "u", "user": {"token": "t"}}],
                  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    (folder / "operator.yaml").write_text(json.dumps({
        "runtimeImage": "pushpull:1", "metricsPort": 0,
        "leaderElection": {"leaseName": "hostile", "leaseNamespace": "default"}}))
    program = jobs.start(OPERATOR, "--config", folder / "operator.yaml", "--kubeconfig", folder / "kubeconfig",
                         environment={"POD_NAME": "operator"})
    try:
        with api._changed:  # pylint: disable=protected-access
            api.await_list()
        _current = api
        yield program
    finally:
        _current = None
        api.shutdown()
        api.server_close()


def _add(name: str, wrong: Wrong, wants_watch: bool = False) -> None:
    def attack(target: Target, chance: random.Random) -> str:
        del target, chance
        assert _current is not None, "the operator does not run"
        return _current.attack(wrong, wants_watch)
    TABLE.add(f"{'watch' if wants_watch else 'list'}: {name}", ANSWERED, attack)


def _add_lists() -> None:
    def add(name: str, body: bytes, **answer: Any) -> None:
        _add(name, lambda request: request.answer(body, **answer))

    def items(value: str) -> bytes:
        return b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":' + value.encode() + b"}"
    add("items 300 levels deep", items("[" + '{"a":' * 300 + "1" + "}" * 300 + "]"))
    add("items 1,000,000 levels deep", items("[" * 1_000_000 + "]" * 1_000_000))
    for value in ("null", "{}", '"x"', "[null,1,true,\"x\",[]]", '[{"metadata":[]}]', '[{"metadata":{"name":7}}]',
                  '[{"metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":9},"spec":"no"}]',
                  '[{"metadata":{"name":"../..","namespace":"a/b"},"spec":{"workers":{"replicas":1e999}}}]'):
        add(f"items {value[:40]}", items(value))
    add("100,000 items without a name", items("[" + ",".join(["{}"] * 100_000) + "]"))
    add("no JSON", b"<html>hello</html>")
    add("nothing", b"")
    add("JSON that ends early", items("[{")[:-1])
    add("a body shorter than it says", b'{"items":[]', length=1000)
    add("no UTF-8", items('["') + b"\xff\xfe")
    add("a string of 64 MiB", items('["' + "x" * _HUGE_BYTES + '"]'))
    add("an error of 500 with noise", b"\xff\x00" * 500, status=500)
    add("401", b"{}", status=401)
    add("a status of another kind", b'{"kind":"Status","code":"many","message":[1]}', status=409)
    add("a redirection to itself", b"", status=302, Location="/api/v1/pods")
    add("a redirection to a file", b"", status=302, Location="file:///etc/passwd")
    add("429 that names no number", b"{}", status=429, Retry_After="-1e9")
    add("a next page without end", b'{"metadata":{"resourceVersion":"1","continue":"again"},"items":[]}')
    add("a version that is a number", b'{"metadata":{"resourceVersion":1},"items":[]}')


def _add_watches() -> None:
    def add(name: str, *lines: bytes) -> None:
        def wrong(request: Request) -> None:
            request.send_response(200)
            request.send_header("Content-Type", "application/json")
            request.end_headers()
            request.close_connection = True
            for line in lines:
                request.wfile.write(line)
        _add(name, wrong, True)
    event = b'{"type":"ADDED","object":'
    add("events that are none", b"1\n", b"null\n", b"[]\n", b'"x"\n', b"{}\n", b'{"type":7}\n')
    add("an event of a later version", b'{"type":"MOVED","object":{"metadata":{"name":"a"}}}\n')
    add("objects that are none", *[event + value + b"}\n" for value in (b"null", b"1", b"[]", b'{"metadata":7}')])
    add("an object 300 levels deep", event + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}\n")
    add("a line without an end", event + b'"', *[b"x" * (1 << 20)] * 64)
    add("an end in an event", event + b'{"metad')
    add("noise", bytes(range(256)) * 100 + b"\n")
    add("an error that is none", b'{"type":"ERROR","object":"x"}\n')
    add("an outdated version", b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n')
    add("a bookmark without an object", b'{"type":"BOOKMARK"}\n')
    add("empty lines", b"\n" * 100_000)


_add_lists()
_add_watches()
