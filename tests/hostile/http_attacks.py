# SPDX-License-Identifier: Apache-2.0
"""HTTP on the metrics port that every role has. Each attack asks for /livez after it, as a kubelet does."""
import contextlib
import random
import socket
import urllib.request

import wire
from rules import ANSWERED, CLOSED, REFUSED, Table, Target

TABLE = Table("metrics", "docs/interfaces.md")
RULES = TABLE.rules
_ENDLESS_BYTES = 1 << 20
_CROWD = 300


def ask(target: Target, chance: random.Random, data: bytes) -> str:
    """By the status line of the first answer."""
    address = chance.choice(target.metrics)
    with wire.connected(address) as connection:
        answer = _status(connection, data)
    probe(address)
    return answer


def _status(connection: socket.socket, data: bytes) -> str:
    line = b""
    try:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        while b"\n" not in line:
            part = connection.recv(4096)
            if not part:
                return CLOSED
            line += part
    except TimeoutError:
        raise AssertionError("neither an answer nor the end of the connection") from None
    except OSError:
        return CLOSED
    return ANSWERED if line.split()[1:2] == [b"200"] else REFUSED


def probe(address: str) -> None:
    """AssertionError when the role does not say that it lives."""
    with urllib.request.urlopen(f"http://{address}/livez", timeout=wire.WAIT_SECONDS) as answer:
        assert answer.status == 200, answer.status


def _add_requests() -> None:
    def add(name: str, answers, make) -> None:
        TABLE.add(name, answers, lambda target, chance: ask(target, chance, make(chance)))
    no = (REFUSED, CLOSED)
    add("a path that leaves its folder", no, lambda chance: b"GET /metrics/../../../etc/passwd HTTP/1.1\r\n\r\n")
    add("an encoded path that leaves its folder", no, lambda chance: b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n\r\n")
    add("a status page asked for by POST", no, lambda chance: b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    add("a status asked for by another host's page", no,
        lambda chance: b"OPTIONS /status.json HTTP/1.1\r\nOrigin: http://elsewhere.test\r\nAccess-Control-Request-Method: GET\r\n\r\n")
    add("a path that leaves the page's folder", no, lambda chance: b"GET /page.js/../../status_feed.cc HTTP/1.1\r\n\r\n")
    add("a tag of noise", (ANSWERED, *no),
        lambda chance: b"GET /status.json HTTP/1.1\r\nIf-None-Match: \"" + chance.randbytes(2000).replace(b"\r", b"").replace(b"\n", b"") + b"\r\n\r\n")
    add("a path of noise", no, lambda chance: b"GET /" + chance.randbytes(300) + b" HTTP/1.1\r\n\r\n")
    add("a path of 8 KiB", no, lambda chance: b"GET /" + b"a" * 8192 + b" HTTP/1.1\r\n\r\n")
    add("a header without an end", no, lambda chance: b"GET /livez HTTP/1.1\r\nA: " + b"a" * _ENDLESS_BYTES)
    add("headers without number", no, lambda chance: b"GET /livez HTTP/1.1\r\n" + b"A: b\r\n" * 100_000)
    add("a method that is not there", no, lambda chance: b"BREW /metrics HTTP/1.1\r\n\r\n")
    add("a body where none belongs", (ANSWERED, *no),
        lambda chance: b"POST /metrics HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\nabc")
    add("chunks that are no numbers", (ANSWERED, *no),
        lambda chance: b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzzzzzzz\r\n" + chance.randbytes(99))
    add("a chunk of 2^64 bytes", (ANSWERED, *no),
        lambda chance: b"POST /livez HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc")
    add("requests one behind the other", (ANSWERED, *no), lambda chance: b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n" * 500)
    add("noise", no, lambda chance: chance.randbytes(chance.randrange(1, 20_000)) + b"\r\n\r\n")
    add("zeros", no, lambda chance: bytes(20_000))
    add("a request that never ends", no, lambda chance: b"GET /livez HT")
    add("TLS on a plain port", no, lambda chance: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500))
    add("HTTP/2 on a port of HTTP/1", no, lambda chance: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
    add("an HTTP of the future", (ANSWERED, *no), lambda chance: b"GET /livez HTTP/9.9\r\n\r\n")


_add_requests()


@TABLE.rule("connections without number", CLOSED, is_slow=True)
def crowd(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.metrics)
    with contextlib.ExitStack() as stack:
        for _ in range(_CROWD):
            connection = stack.enter_context(wire.connected(address))
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /"[:chance.randrange(6)])
        probe(address)
    return CLOSED


@TABLE.rule("pages and statuses that nobody reads", CLOSED, is_slow=True)
def unread_page(target: Target, chance: random.Random) -> str:
    """Only a coordinator has them; the others answer that they do not."""
    for address in target.metrics:
        with contextlib.ExitStack() as stack:
            for path in (b"/", b"/uPlot.iife.min.js", b"/status.json", b"/history.json") * 10:
                connection = stack.enter_context(wire.connected(address))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                with contextlib.suppress(OSError):
                    connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            probe(address)
    return CLOSED


@TABLE.rule("scrapes that nobody reads", CLOSED, is_slow=True)
def unread(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.metrics)
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(wire.connected(address))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            with contextlib.suppress(OSError):
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 20)
        probe(address)
    return CLOSED
