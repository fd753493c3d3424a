# SPDX-License-Identifier: Apache-2.0
"""Frames and connections of an attacker: docs/decisions/0002-frame-layout.md, written a second time, so that an error
in one of the two is seen. Only the checksum is shared with other tests."""
import contextlib
import socket
import ssl
import struct
from typing import Any, Iterator, Optional

import job
import frames
from rules import ANSWERED, CLOSED, REFUSED, SILENT, Target

HELLO, HELLO_ACK, PING, PONG, INIT, PUSH, PULL, PUSH_PULL, PUBLISHED, REFUSED_TYPE = range(1, 11)
(MOVED, JOIN_SHARD, STREAM_START, REPLICATE, COPY_CHUNK, CAUGHT_UP, REPLICATE_ACK, FETCH, RETURN_COPY, HELD, DECIDED,
 CREDIT, REGION, SQUARES, SCALE, EXCHANGE, EXCHANGED) = range(11, 28)
WORKER = 40  # an index that the job does not have
WAIT_SECONDS = 20.0 * job.PATIENCE  # for what must come; twice the longest timeout of a role
_LAYOUT = {"magic": (0, "I"), "version": (4, "H"), "type": (6, "B"), "flags": (7, "B"), "codec": (8, "B"),
           "dtype": (9, "B"), "reduction": (10, "B"), "priority": (11, "B"), "meta_bytes": (12, "H"),
           "payload_bytes": (16, "I"), "worker": (20, "I"), "incarnation": (24, "Q"), "term": (32, "Q"),
           "counter": (40, "Q"), "chunk": (48, "Q"), "step": (56, "Q"), "learning_rate": (64, "d"), "weight": (72, "d"),
           "trace": (80, "Q"), "sent_at": (88, "q"), "payload_checksum": (96, "Q"), "clock": (104, "Q"),
           "base_version": (112, "Q")}


def header(kind: int, **fields: Any) -> bytes:
    """With its own checksum, unless `checksum` gives another."""
    checksum = fields.pop("checksum", None)
    data = bytearray(frames.HEADER_BYTES)
    defaults = {"magic": 0x75507550, "version": 1, "dtype": 1, "reduction": 1, "weight": 1.0, "worker": WORKER}
    for name, value in {**defaults, "type": kind, **fields}.items():
        at, form = _LAYOUT[name]
        struct.pack_into("<" + form, data, at, value)
    signed = frames.signed(bytes(data))
    return signed if checksum is None else signed[:-8] + struct.pack("<Q", checksum)


def frame(kind: int, meta: bytes = b"", payload: bytes = b"", **fields: Any) -> bytes:
    sizes = {"meta_bytes": len(meta), "payload_bytes": len(payload)}
    return header(kind, **{**sizes, **fields}) + meta + payload


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<H", len(data)) + data


def hello_meta(job_name: str, *, lane: int = 0, worker: int = WORKER, incarnation: int = 1, server: Optional[int] = None,
               host: int = 0, shm: Optional[bytes] = None, checksums: int = 2) -> bytes:
    meta = text(job_name) + struct.pack("<IQI", worker, incarnation, lane)
    meta += struct.pack("<BIQ", server is not None, server or 0, host)
    meta += b"\0" if shm is None else b"\1" + shm
    return meta + bytes([checksums])


@contextlib.contextmanager
def connected(address: str, tls: Optional[ssl.SSLContext] = None) -> Iterator[socket.socket]:
    """A connection whose every wait has a deadline; OSError where the peer does not want it."""
    host, port = address.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), WAIT_SECONDS)
    try:
        if tls is not None:
            plain = tls.wrap_socket(plain, server_hostname="pushpull")
        yield plain
    finally:
        plain.close()


def read_exactly(connection: socket.socket, num_bytes: int) -> bytes:
    """EOFError: closed before."""
    data = b""
    while len(data) < num_bytes:
        part = connection.recv(num_bytes - len(data))
        if not part:
            raise EOFError
        data += part
    return data


class Peer:
    """What an attacker says on one connection to a server's data port."""

    def __init__(self, connection: socket.socket, incarnation: int) -> None:
        self._connection = connection
        self.incarnation = incarnation
        self.has_ring = False  # payloads come and go through shared memory

    def send(self, data: bytes) -> None:
        """A peer that has closed is no error here: the answer says so."""
        with contextlib.suppress(OSError):
            self._connection.sendall(data)

    def narrow(self) -> None:
        """Receives little at a time, and no longer waits to send."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._connection.settimeout(0.5)

    def reset(self) -> None:
        """Its end will be a reset."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def frame(self, kind: int, meta: bytes = b"", payload: bytes = b"", **fields: Any) -> None:
        self.send(frame(kind, meta, payload, **{"incarnation": self.incarnation, **fields}))

    def receive(self) -> Optional[frames.Frame]:
        """None: closed. AssertionError: nothing within the deadline."""
        try:
            head = read_exactly(self._connection, frames.HEADER_BYTES)
            received = frames.Frame(head)
            received.body = read_exactly(self._connection, received.meta_bytes + (0 if self.has_ring else received.payload_bytes))
            return received
        except TimeoutError:
            raise AssertionError("neither an answer nor the end of the connection") from None
        except (EOFError, OSError):
            return None

    def admission(self) -> bytes:
        """The meta of the answer to a hello; ConnectionError: it is not admitted."""
        received = self.receive()
        if received is None or received.body[:4] != bytes(4):
            raise ConnectionError("not admitted")
        return received.body

    def answer(self) -> str:
        """To what has been sent. Pings after it are answered at last, also by whoever drops it; a second one, because
        answers to pings may overtake others."""
        best = SILENT
        for _ in range(2):
            self.frame(PING)
            while (received := self.receive()) is not None and received.type != PONG:
                if received.type in (REFUSED_TYPE, MOVED):
                    best = REFUSED
                elif received.type != HELLO_ACK:
                    best = ANSWERED
            if received is None:
                return CLOSED
        return best

    def end(self) -> str:
        """CLOSED when the connection has ended, whatever came before."""
        while self.receive() is not None:
            pass
        return CLOSED


@contextlib.contextmanager
def greeted(target: Target, address: str, incarnation: int = 1, server: Optional[int] = None) -> Iterator[Peer]:
    """A connection to a server after an attacker's hello and its answer; a stranger does not know the job's name."""
    with connected(address, target.tls) as connection:
        peer = Peer(connection, incarnation)
        name = target.job if target.is_member else "another"
        peer.frame(HELLO, hello_meta(name, incarnation=incarnation, server=server))
        peer.receive()
        yield peer
