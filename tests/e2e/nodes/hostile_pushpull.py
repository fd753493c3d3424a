#!/usr/bin/python3.11
# SPDX-License-Identifier: Apache-2.0
"""What a tenant may put in place of servers and coordinator (spec.servers.image): it is ready at once, has the job's
certificates, and answers whoever asks on the control port by one trick after the other.

    pushpull coordinator|server ...
"""
import http.server
import os
import signal
import socket
import ssl
import sys
import threading
from typing import Callable

CONTROL, METRICS = 7170, 9464
HOLD_SECONDS = 6.0
_SETTINGS, _PING, _HEADERS, _DATA = 4, 6, 1, 0
_END_HEADERS = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# :status 200 and content-type: application/grpc, as HPACK has them.
_GRPC_HEADERS = b"\x88\x0f\x10\x10application/grpc"


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + content


def hello(peer: ssl.SSLSocket) -> None:
    """Until the first request, of stream 1, is there."""
    peer.sendall(frame(_SETTINGS, 0, 0, b""))
    got, at = b"", len(_PREFACE)
    while True:
        while len(got) < at + 9:
            got += peer.recv(4096) or stop()
        if got[at + 3] == _HEADERS:
            break
        at += 9 + int.from_bytes(got[at:at + 3], "big")
    peer.sendall(frame(_SETTINGS, 1, 0, b""))
    print("asked", flush=True)


def stop() -> bytes:
    raise OSError("the peer has gone")


def be_silent(peer: ssl.SSLSocket) -> None:
    while peer.recv(4096):
        pass


def send_garbage(peer: ssl.SSLSocket) -> None:
    for _ in range(64):
        peer.sendall(os.urandom(65536))


def send_endless_message(peer: ssl.SSLSocket) -> None:
    """Of 2 GiB, as its length says, whatever the peer's window is."""
    hello(peer)
    peer.sendall(frame(_HEADERS, _END_HEADERS, 1, _GRPC_HEADERS))
    peer.sendall(frame(_DATA, 0, 1, b"\x00\x7f\xff\xff\xff"))
    while True:
        peer.sendall(frame(_DATA, 0, 1, b"\x0a" * 16384))


def send_part_of_a_message(peer: ssl.SSLSocket) -> None:
    """The first kilobyte of 8 MiB, and never the rest."""
    hello(peer)
    peer.sendall(frame(_HEADERS, _END_HEADERS, 1, _GRPC_HEADERS))
    peer.sendall(frame(_DATA, 0, 1, b"\x00" + (8 << 20).to_bytes(4, "big") + b"\x0a" * 1000))
    be_silent(peer)


def send_endless_headers(peer: ssl.SSLSocket) -> None:
    hello(peer)
    peer.sendall(frame(_HEADERS, 0, 1, _GRPC_HEADERS))
    while True:
        peer.sendall(frame(9, 0, 1, b"\x00\x01x\x7f\x80\x3f" + b"\x1b[31m" * 2000))


def send_pings(peer: ssl.SSLSocket) -> None:
    hello(peer)
    while True:
        peer.sendall(frame(_PING, 0, 0, b"12345678") * 100)


TRICKS: list[Callable[[ssl.SSLSocket], None]] = [
    send_garbage, send_endless_message, send_part_of_a_message, send_endless_headers, send_pings, be_silent]


def treat(connection: socket.socket, context: ssl.SSLContext, trick: Callable[[ssl.SSLSocket], None]) -> None:
    connection.settimeout(HOLD_SECONDS)
    end = threading.Timer(HOLD_SECONDS, lambda: connection.shutdown(socket.SHUT_RDWR))
    try:
        with context.wrap_socket(connection, server_side=True) as peer:
            print(f"trick: {trick.__name__}", flush=True)
            connection = peer
            end.start()
            trick(peer)
    except OSError:
        pass  # the peer has had enough
    finally:
        end.cancel()


def control() -> None:
    folder = os.environ["PUSHPULL_TLS_DIR"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    context.set_alpn_protocols(["h2"])
    listener, turn = socket.create_server(("0.0.0.0", CONTROL), backlog=64), 0
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=treat, args=(connection, context, TRICKS[turn % len(TRICKS)]), daemon=True).start()
        turn += 1


class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # so that nobody waits for it
    if sys.argv[1] == "coordinator":
        threading.Thread(target=control, daemon=True).start()
    http.server.ThreadingHTTPServer(("0.0.0.0", METRICS), Ready).serve_forever()
