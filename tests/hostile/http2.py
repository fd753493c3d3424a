# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 and gRPC as far as an attacker needs them: RFC 9113 and 7541 without Huffman codes, by hand, because a library
would not send what is wrong."""
import contextlib
import socket
import struct
from typing import Callable, Iterator, Optional

import wire
from rules import ANSWERED, CLOSED, REFUSED, SILENT, Table, Target

DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16_384
_WINDOW = 65_535
ANY = (REFUSED, CLOSED, ANSWERED, SILENT)  # what the library makes of it


def frame(kind: int, payload: bytes = b"", flags: int = 0, stream: int = 0, length: Optional[int] = None) -> bytes:
    size = len(payload) if length is None else length
    return struct.pack(">I", size)[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that no table remembers."""
    return b"\x00" + _text(name) + _text(value)


def _text(data: bytes) -> bytes:
    size, rest = len(data), b""
    if size < 127:
        return bytes([size]) + data
    size, rest = size - 127, b"\x7f"
    while size >= 128:
        rest += bytes([size % 128 + 128])
        size //= 128
    return rest + bytes([size]) + data


def request(path: str, method: str = "POST", content_type: str = "application/grpc", **more: str) -> bytes:
    """A block of headers; of `more` _ is - in names."""
    pairs = {":method": method, ":scheme": "http", ":path": path, ":authority": "a", "content-type": content_type,
             "te": "trailers", **{name.replace("_", "-"): value for name, value in more.items()}}
    return b"".join(literal(name.encode(), value.encode()) for name, value in pairs.items())


def message(body: bytes, flag: int = 0, length: Optional[int] = None) -> bytes:
    """As gRPC frames a message."""
    return struct.pack(">BI", flag, len(body) if length is None else length) + body


class Connection:
    """One connection, with as many calls as the attacker likes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._window = {0: _WINDOW}
        self._unseen: list[tuple[int, int, int, bytes]] = []  # came while this side was sending
        self._ended: set[int] = set()  # calls
        self.send(PREFACE + frame(SETTINGS))

    def send(self, data: bytes) -> None:
        """A peer that has closed is no error here: the answer says so."""
        with contextlib.suppress(OSError):
            self._connection.sendall(data)

    def call(self, path: str, stream: int = 1, **headers: str) -> None:
        self.send(frame(HEADERS, request(path, **headers), END_HEADERS, stream))

    def data(self, body: bytes, stream: int = 1, is_last: bool = False) -> None:
        """Within the windows that the peer gives; returns early where it ends the call."""
        while body and stream not in self._ended:
            room = min(self._window[0], self._window.setdefault(stream, _WINDOW), FRAME_BYTES_MAX)
            if room <= 0:
                received = self._read()
                if received is None:
                    return
                self._unseen.append(received)
                continue
            part, body = body[:room], body[room:]
            self._window[0] -= len(part)
            self._window[stream] -= len(part)
            self.send(frame(DATA, part, 0, stream))
        if is_last:
            self.send(frame(DATA, b"", END_STREAM, stream))

    def _read(self) -> Optional[tuple[int, int, int, bytes]]:
        """Type, flags, stream and payload; None: closed."""
        try:
            head = wire.read_exactly(self._connection, 9)
            size = int.from_bytes(head[:3], "big")
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            payload = wire.read_exactly(self._connection, size)
        except TimeoutError:
            raise AssertionError("neither an answer nor the end of the connection") from None
        except (EOFError, OSError):
            return None
        if kind == WINDOW_UPDATE:
            self._window[stream] = self._window.get(stream, _WINDOW) + struct.unpack(">I", payload)[0]
        if kind == DATA and payload:  # an honest reader, so that nothing else is in the way
            more = struct.pack(">I", len(payload))
            self.send(frame(WINDOW_UPDATE, more) + frame(WINDOW_UPDATE, more, 0, stream))
        if kind == RST or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self._ended.add(stream)
        if kind == SETTINGS and not flags & ACK:
            self.send(frame(SETTINGS, b"", ACK))
        if kind == PING and not flags & ACK:
            self.send(frame(PING, payload, ACK))
        return kind, flags, stream, payload

    def first_message(self, stream: int = 1) -> Optional[bytes]:
        """The first message that comes back, up to its frame's end; empty: the call ended before; None: closed."""
        while (received := self._unseen.pop(0) if self._unseen else self._read()) is not None:
            kind, flags, of, payload = received
            if kind == GOAWAY:
                return None
            if of == stream and kind == DATA and len(payload) > 5:
                return payload[5:]
            if of == stream and (kind == RST or (kind in (DATA, HEADERS) and flags & END_STREAM)):
                return b""
        return None

    def answer(self, stream: int = 1) -> str:
        first = self.first_message(stream)
        if first is None:
            return CLOSED
        return ANSWERED if first else REFUSED

    def end(self) -> str:
        """CLOSED, or SILENT when the peer goes on after all that was sent."""
        self.send(frame(PING, b"hostile!"))
        while (received := self._read()) is not None:
            if received[0] == PING and received[1] & ACK and received[3] == b"hostile!":
                return SILENT
            if received[0] == GOAWAY:
                return CLOSED
        return CLOSED


@contextlib.contextmanager
def connected(target: Target, address: str) -> Iterator[Connection]:
    with wire.connected(address, target.tls) as connection:
        yield Connection(connection)


def add_http2_rules(table: Table, unary: str, stream: str, raw: Callable[[Target, bytes], str]) -> None:
    """Against a port that serves the two calls."""
    def add(name: str, answers, data: bytes, is_slow: bool = False) -> None:
        table.add(f"HTTP/2: {name}", answers, lambda target, chance: raw(target, data), is_slow=is_slow)
    status = request(unary)
    session_call = frame(HEADERS, request(stream), END_HEADERS, 1)
    add("a frame of 16 MiB", CLOSED, frame(DATA, b"x", 0, 1, 2**24 - 1))
    add("headers of stream 0", ANY, frame(HEADERS, status, END_HEADERS, 0))
    add("headers of an even stream", ANY, frame(HEADERS, status, END_HEADERS, 2))
    add("data of a stream that has not begun", ANY, frame(DATA, b"abc", 0, 99))
    add("settings of 5 bytes", CLOSED, frame(SETTINGS, b"\0" * 5))
    # The ping that asks whether anybody is there is taken for the rest of it.
    add("settings of which only a part comes", CLOSED, frame(SETTINGS, bytes(6), 0, 0, 15_996), is_slow=True)
    add("a window of 2^31", CLOSED, frame(SETTINGS, struct.pack(">HI", 4, 2**31)))
    add("frames of 1 byte at most", CLOSED, frame(SETTINGS, struct.pack(">HI", 5, 1)))
    add("a window that grows by 0", ANY, frame(WINDOW_UPDATE, bytes(4)))
    add("a window beyond 2^31", ANY, frame(WINDOW_UPDATE, struct.pack(">I", 2**31 - 1)) * 2)
    add("a continuation of nothing", CLOSED, frame(CONTINUATION, status, END_HEADERS, 1))
    add("headers without an end", ANY, frame(HEADERS, status, 0, 1) + frame(
        CONTINUATION, literal(b"a", b"b" * 16_000), 0, 1) * 500, is_slow=True)
    add("headers that are no headers", ANY, frame(HEADERS, b"\xff" * 200, END_HEADERS, 1))
    remembered = b"\x40\x01a" + b"\x7f\x81\x1e" + b"b" * 4000
    add("headers that grow when unpacked", ANY,
        frame(HEADERS, status + remembered + b"\xbe" * 12_000, END_HEADERS, 1))
    add("calls that end at once", ANY, b"".join(
        frame(HEADERS, status, END_HEADERS, number) + frame(RST, bytes(4), 0, number)
        for number in range(1, 4000, 2)))
    add("pings without number", ANY, frame(PING, b"xxxxxxxx") * 20_000)
    add("settings without number", ANY, frame(SETTINGS) * 5000)
    add("a promise of a client", ANY, session_call + frame(PUSH_PROMISE, bytes(4) + status, 4, 1))
    add("data beyond the window", ANY, session_call + frame(DATA, bytes(16_384), 0, 1) * 300)
