# SPDX-License-Identifier: Apache-2.0
"""The coordinator's port: HTTP/2, gRPC and the messages of proto/pushpull/v1/control.proto, whose numbers are written
here a second time. Without TLS whoever reaches the port may do what a member may."""
import contextlib
import gzip
import math
import random
import struct
from typing import Any

import http2
from rules import ANSWERED, CLOSED, REFUSED, Table, Target

TABLE = Table("coordinator", "docs/protocol.md")
RULES = TABLE.rules
_SERVICE = "/pushpull.v1.Coordinator/"
_ENDED = (REFUSED, CLOSED)
_REGISTER_SERVER, _REGISTER_WORKER, _REGISTER_TENSORS, _HEARTBEAT, _LEAVE, _FAILURE = 1, 2, 3, 6, 7, 8
_PROMISES, _CAPTURED, _SERVER_REPORT, _COPIES = 9, 20, 12, 40
_STOP = 8


def varint(value: int) -> bytes:
    data = b""
    while value >= 128:
        data += bytes([value % 128 + 128])
        value //= 128
    return data + bytes([value])


def field(number: int, value: Any) -> bytes:
    """An int, a float or bytes as a field of protobuf."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(**numbered: Any) -> bytes:
    """f1=..., f2=... of a message."""
    return b"".join(field(int(name[1:]), value) for name, value in numbered.items())


def server(**changed: Any) -> bytes:
    """A registration that would be taken if index and the rest were right."""
    right = {"f1": 2, "f2": 5, "f3": b"127.0.0.1:9", "f4": b"127.0.0.1:9", "f5": 2, "f6": 1.0, "f7": 1}
    return field(_REGISTER_SERVER, fields(**{**right, **changed}))


def worker(**changed: Any) -> bytes:
    return field(_REGISTER_WORKER, fields(**{"f1": 7, "f2": 5, "f3": b"127.0.0.1:9", "f4": 1, **changed}))


def session(target: Target, *messages: bytes) -> str:
    """REFUSED also where the first message is a stop."""
    with http2.connected(target, target.coordinator) as peer:
        peer.call(_SERVICE + "Session")
        for body in messages:
            peer.data(http2.message(body))
        first = peer.first_message()
    alive(target)
    if first is None:
        return CLOSED
    return REFUSED if not first or first[0] >> 3 == _STOP else ANSWERED


def unary(target: Target, call: str, data: bytes, **headers: str) -> str:
    with http2.connected(target, target.coordinator) as peer:
        peer.call(call if call.startswith("/") else _SERVICE + call, **headers)
        peer.data(data, is_last=True)
        answer = peer.answer()
    alive(target)
    return answer


def raw(target: Target, data: bytes) -> str:
    with http2.connected(target, target.coordinator) as peer:
        peer.send(data)
        answer = peer.end()
    alive(target)
    return answer


def alive(target: Target) -> None:
    """AssertionError unless the coordinator answers those whom it knows."""
    if target.tls is not None and not target.is_member:
        return
    with http2.connected(target, target.coordinator) as peer:
        peer.call(_SERVICE + "GetStatus")
        peer.data(http2.message(b""), is_last=True)
        answer = peer.answer()
    assert answer == ANSWERED, f"the coordinator's status: {answer}"


def _add_grpc_rules() -> None:
    def add(name: str, answers, call: str, data: bytes, is_slow: bool = False, **headers: str) -> None:
        TABLE.add(f"gRPC: {name}", answers, lambda target, chance: unary(target, call, data, **headers),
                  is_slow=is_slow)
    empty = http2.message(b"")
    add("a method that is not there", _ENDED, "Nothing", empty)
    add("a service that is not there", _ENDED, "/pushpull.v2.Coordinator/GetStatus", empty)
    add("the path ..", _ENDED, "/../../etc/passwd", empty)
    add("GET", _ENDED, "GetStatus", empty, method="GET")
    add("another type of content", http2.ANY, "GetStatus", empty, content_type="text/html")
    add("a timeout that is none", http2.ANY, "GetStatus", empty, grpc_timeout="99999999999999S")
    add("a message of 4 GiB", _ENDED, "GetStatus", http2.message(b"abc", length=2**32 - 1))
    add("a message that ends early", _ENDED, "GetStatus", http2.message(b"abc", length=100))
    add("a packed message in no packing", _ENDED, "GetStatus", http2.message(b"abc", flag=1))
    add("a packed message in one that is not there", _ENDED, "GetStatus", http2.message(b"abc", flag=1),
        grpc_encoding="zzz")
    add("flags that are not there", http2.ANY, "GetStatus", http2.message(b"abc", flag=0x7e))
    add("no message", _ENDED, "GetStatus", b"")
    add("two messages where one belongs", http2.ANY, "GetStatus", empty * 2)
    add("a message that is no protobuf", _ENDED, "GetStatus", http2.message(b"\xff" * 50))
    add("groups 10,000 deep", http2.ANY, "GetStatus", http2.message(varint(15 << 3 | 3) * 10_000))
    add("64 MiB packed in 64 KiB", _ENDED, "GetStatus", http2.message(gzip.compress(
        field(15, bytes(64 << 20))), flag=1), grpc_encoding="gzip", is_slow=True)


def _add_request_rules() -> None:
    def add(name: str, method: str, body: bytes) -> None:
        # The answer has a status in it, and says what is wrong.
        TABLE.add(f"request: {name}", (ANSWERED, REFUSED), lambda target, chance: unary(
            target, method, http2.message(body)))
    add("4,294,967,295 servers", "Resize", fields(f1=2**32 - 1))
    add("4,294,967,295 workers", "Resize", fields(f2=2**32 - 1))
    add("no servers", "Resize", fields(f1=0))
    add("no workers", "Resize", fields(f2=0))
    add("a mode that is not there", "SetMode", fields(f1=99))
    add("more backup workers than workers", "SetMode", fields(f3=2**32 - 1))
    add("checkpoints where there is no folder", "SaveCheckpoint", b"")


def _add_session_rules() -> None:
    def add(name: str, *messages: bytes, answers=_ENDED) -> None:
        TABLE.add(f"session: {name}", answers, lambda target, chance: session(target, *messages))
    add("no registration first", field(_HEARTBEAT, b""))
    add("leave of nobody", field(_LEAVE, fields(f1=3)))
    add("failure of nobody", field(_FAILURE, field(1, fields(f1=13, f2=b"down with it"))))
    add("tensors of nobody", field(_REGISTER_TENSORS, field(1, fields(f1=b"t", f2=2**63))))
    add("promises of nobody", field(_PROMISES, field(1, field(1, field(1, 0)))))
    add("a report of nobody", field(_SERVER_REPORT, fields(f1=2**64 - 1)))
    add("a capture of nobody", field(_CAPTURED, field(4, fields(f1=b"../../x", f2=2**64 - 1))))
    add("copies of nobody", field(_COPIES, fields(f1=1, f2=2**32 - 1)))
    add("an empty message", b"")
    add("a message of a later version", field(999, b"abc"))
    add("no protobuf", b"\xff\xff\xff\xff")
    add("groups 10,000 deep", varint(1 << 3 | 3) * 10_000)
    for index in (2, 1024, 2**32 - 1):
        add(f"server {index}", server(f1=index))
    add("the index of a server that lives", server(f1=0))
    for weight in (0.0, -1.0, math.nan, math.inf):
        add(f"a server with weight {weight}", server(f6=weight))
    add("a server without lanes", server(f5=0))
    add("a server with 4,294,967,295 lanes", server(f5=2**32 - 1))
    add("an address of 1 MiB", server(f3=b"a" * (1 << 20)))
    add("an address that is not UTF-8", server(f3=b"\xff\xfe\xfd"))
    add("an address that moves the cursor", server(f3=b"\x1b[2J127.0.0.1:9\n"))
    for index in (2, 65_536, 2**32 - 1):
        add(f"worker {index}", worker(f1=index))
    add("a term of the far future", worker(f5=2**64 - 1))
    add("a server of a term of the far future", server(f8=2**64 - 1))
    add("two registrations", worker(), worker())
    add("both roles at once", worker() + server())
    add("10,000 messages of nobody", *[field(_HEARTBEAT, b"")] * 10_000)


http2.add_http2_rules(TABLE, _SERVICE + "GetStatus", _SERVICE + "Session", raw)
_add_grpc_rules()
_add_request_rules()
_add_session_rules()


@TABLE.rule("HTTP/2: noise", CLOSED)
def noise(target: Target, chance: random.Random) -> str:
    return raw(target, chance.randbytes(chance.randrange(100, 20_000)))


@TABLE.rule("session: messages of noise", _ENDED)
def noisy_session(target: Target, chance: random.Random) -> str:
    return session(target, chance.randbytes(chance.randrange(1, 2000)))


@TABLE.rule("session: many that never register", ANSWERED, is_slow=True)
def silent_sessions(target: Target, chance: random.Random) -> str:
    del chance
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            peer = stack.enter_context(http2.connected(target, target.coordinator))
            for number in range(50):
                peer.call(_SERVICE + "Session", 2 * number + 1)
            peer.end()
        return unary(target, "GetStatus", http2.message(b""))


@TABLE.rule("request: waiters without number", ANSWERED)
def waiters(target: Target, chance: random.Random) -> str:
    with http2.connected(target, target.coordinator) as peer:
        for number in range(50):
            peer.call(_SERVICE + "GetStatus", 2 * number + 1)
            peer.data(http2.message(field(1, chance.getrandbits(63))), 2 * number + 1, is_last=True)
        return peer.answer(99)
