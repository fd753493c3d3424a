# SPDX-License-Identifier: Apache-2.0
"""Frames on the data port of a server."""
import contextlib
import math
import random
import struct

import wire
from rules import ANSWERED, CLOSED, REFUSED, SILENT, Table, Target

TABLE = Table("server", "docs/decisions/0002-frame-layout.md")
RULES = TABLE.rules
_HANDSHAKES = 200  # more than a server keeps without a hello
_CONNECTIONS = 400
_BEGUN_BYTES = 100_000
_MEBIBYTE = 1 << 20


def first(target: Target, chance: random.Random, data: bytes) -> str:
    """The answer to these first bytes of a connection."""
    with wire.connected(chance.choice(target.servers), target.tls) as connection:
        peer = wire.Peer(connection, 1)
        peer.send(data)
        return peer.answer()


def later(target: Target, chance: random.Random, data: bytes) -> str:
    """The answer to these bytes after a hello."""
    with wire.greeted(target, chance.choice(target.servers)) as peer:
        peer.send(data)
        return peer.answer()


def _add_header_rules() -> None:
    fields = {
        "magic": 0x12345678, "version 0": 0, "version 2": 2, "type 0": 0, "type 28": 28, "type 255": 255, "flags": 128,
        "codec": 200, "dtype": 99, "reduction": 99, "meta_bytes": 4097, "payload_bytes": _MEBIBYTE + 1}
    for name, value in fields.items():
        field = name.split()[0]

        def attack(target: Target, chance: random.Random, field: str = field, value: int = value) -> str:
            data = wire.header(wire.PING, **{"incarnation": 1, field: value})
            return later(target, chance, data) if target.is_member and chance.random() < 0.5 else \
                first(target, chance, data)
        TABLE.add(f"header: {name} is {value}", CLOSED, attack)


def _add_hello_rules() -> None:
    def add(name: str, make) -> None:
        TABLE.add(f"hello: {name}", CLOSED, lambda target, chance: first(target, chance, wire.frame(
            wire.HELLO, make(target, chance))))
    add("of another job", lambda target, chance: wire.hello_meta("other"))
    add("a job's name of 1,024 bytes", lambda target, chance: wire.hello_meta("x" * 1024))
    add("a name longer than the meta", lambda target, chance: struct.pack("<H", 65535) + b"abc")
    add("no meta", lambda target, chance: b"")
    add("truncated", lambda target, chance: wire.hello_meta(target.job)[:-chance.randrange(1, 20)])
    add("unknown payload checksums", lambda target, chance: wire.hello_meta(target.job, checksums=9))
    add("a lane that is not there", lambda target, chance: wire.hello_meta(target.job, lane=2**32 - 1))
    add("noise", lambda target, chance: chance.randbytes(chance.randrange(1, 4096)))


def _add_member_rules() -> None:
    """After a hello of a worker that is not in the view: no effect, whatever it says."""
    def add(name: str, answers, kind: int, payload=lambda target: b"", meta: bytes = b"", **fields) -> None:
        def attack(target: Target, chance: random.Random) -> str:
            with wire.greeted(target, chance.choice(target.servers), chance.getrandbits(63)) as peer:
                peer.frame(kind, meta, payload(target), **fields)
                return peer.answer()
        TABLE.add(name, answers, attack, needs_member=True)

    def whole(target: Target) -> bytes:
        return bytes(target.chunk_bytes)
    add("frame of another worker", CLOSED, wire.PULL, worker=0)
    add("frame of another incarnation", CLOSED, wire.PULL, incarnation=2**64 - 1)
    add("second hello", CLOSED, wire.HELLO, meta=wire.hello_meta("x"))
    for kind in (wire.HELLO_ACK, wire.PUBLISHED, wire.REFUSED_TYPE, wire.MOVED, wire.JOIN_SHARD, wire.STREAM_START,
                 wire.REPLICATE, wire.COPY_CHUNK, wire.CAUGHT_UP, wire.REPLICATE_ACK, wire.HELD, wire.SQUARES,
                 wire.EXCHANGED):
        add(f"type {kind}, which no worker sends", CLOSED, kind)
    for kind in (wire.CREDIT, wire.REGION):
        add(f"type {kind} on a channel without shared memory", CLOSED, kind, meta=b"\xff" * 24)
    add("payload in shared memory that is not there", CLOSED, wire.PUSH, whole, b"\xff" * 16, flags=4)
    add("codec of a pull", CLOSED, wire.PULL, codec=1)
    for chunk in (2, 2**32, 2**64 - 1):
        add(f"push of chunk {chunk}", REFUSED, wire.PUSH_PULL, whole, chunk=chunk)
        add(f"pull of chunk {chunk}", REFUSED, wire.PULL, chunk=chunk)
        add(f"copy of chunk {chunk}", (CLOSED, REFUSED), wire.RETURN_COPY, whole, chunk=chunk)
    for step in (0, 2**32, 2**64 - 1):
        # A step of the past may be answered with a newer version, as a duplicate is.
        add(f"push for step {step}", (REFUSED, ANSWERED), wire.PUSH_PULL, whole, step=step)
        add(f"push for step {step} without a value", (REFUSED, ANSWERED), wire.PUSH, whole, step=step)
    add("pull of a version far ahead", (SILENT, REFUSED), wire.PULL, step=2**63)
    add("fetch where no step has backup workers", (SILENT, REFUSED, ANSWERED), wire.FETCH, step=2**63)
    for value in (math.nan, math.inf, -1.0):
        add(f"push with weight {value}", (REFUSED, ANSWERED), wire.PUSH, whole, weight=value)
    add("push with learning rate nan", (REFUSED, ANSWERED), wire.PUSH, whole, learning_rate=math.nan)
    add("push with NaN", (REFUSED, ANSWERED), wire.PUSH, lambda target: struct.pack("<f", math.nan) *
        (target.chunk_bytes // 4))
    add("push of half a chunk", REFUSED, wire.PUSH, lambda target: bytes(target.chunk_bytes // 2))
    add("push of nothing", REFUSED, wire.PUSH)
    add("push without a gradient", (REFUSED, ANSWERED), wire.PUSH, flags=64)
    add("push without a gradient that has one", REFUSED, wire.PUSH, whole, flags=64)
    add("pull without a gradient", (SILENT, REFUSED), wire.PULL, flags=64, step=2**63)
    add("push in a codec that the tensor does not have", REFUSED, wire.PUSH, lambda target: bytes(64), codec=3)
    add("initial value of a chunk that has one", (REFUSED, ANSWERED), wire.INIT, whole)
    add("state of an optimizer that does not fit", (REFUSED, ANSWERED), wire.INIT,
        lambda target: bytes(target.chunk_bytes + 4))
    add("admission that ends too early", (CLOSED, REFUSED), wire.DECIDED, meta=b"\xff\xff\xff", flags=2)
    add("admission of a step that waits for nobody", (SILENT, CLOSED, REFUSED), wire.DECIDED, meta=b"\xff" * 64, flags=2)
    add("scale of a tensor that is not clipped", (SILENT, REFUSED), wire.SCALE, weight=0.0)
    add("exchange without meta", CLOSED, wire.EXCHANGE)
    add("exchange that is noise", (CLOSED, REFUSED), wire.EXCHANGE, meta=b"\xff" * 200)
    add("meta of 4,096 bytes", (SILENT, REFUSED), wire.PULL, meta=b"\xff" * 4096, step=2**62)


_add_header_rules()
_add_hello_rules()
_add_member_rules()


@TABLE.rule("header: wrong checksum", CLOSED)
def wrong_checksum(target: Target, chance: random.Random) -> str:
    return first(target, chance, wire.header(wire.HELLO, checksum=chance.getrandbits(63)))


@TABLE.rule("first frame is no hello", CLOSED)
def no_hello(target: Target, chance: random.Random) -> str:
    return first(target, chance, wire.frame(chance.choice([wire.PUSH, wire.PULL, wire.PING, wire.JOIN_SHARD])))


@TABLE.rule("noise instead of frames", CLOSED)
def noise(target: Target, chance: random.Random) -> str:
    return first(target, chance, chance.randbytes(chance.randrange(128, 100_000)))


@TABLE.rule("HTTP instead of frames", CLOSED)
def http(target: Target, chance: random.Random) -> str:
    return first(target, chance, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".ljust(256))


@TABLE.rule("frames where TLS is spoken, TLS where it is not", CLOSED)
def other_tls(target: Target, chance: random.Random) -> str:
    data = wire.frame(wire.HELLO, wire.hello_meta(target.job))
    if target.tls is None:
        data = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500)
    return first(target._replace(tls=None), chance, data)


@TABLE.rule("a hello in pieces of a byte", SILENT, needs_member=True)
def slow_hello(target: Target, chance: random.Random) -> str:
    with wire.connected(chance.choice(target.servers), target.tls) as connection:
        peer = wire.Peer(connection, 1)
        for byte in wire.frame(wire.HELLO, wire.hello_meta(target.job if target.is_member else "x"), incarnation=1):
            peer.send(bytes([byte]))
        peer.receive()
        return peer.answer()


@TABLE.rule("frames before the answer to a hello", CLOSED)
def hasty(target: Target, chance: random.Random) -> str:
    hello = wire.frame(wire.HELLO, wire.hello_meta(target.job), incarnation=1)
    return first(target, chance, hello + wire.frame(wire.PULL, incarnation=1) * chance.randrange(1, 2000))


@TABLE.rule("connections without a hello: the oldest ends", CLOSED, is_slow=True)
def silent_crowd(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    with contextlib.ExitStack() as stack:
        crowd = [stack.enter_context(wire.connected(address)) for _ in range(_HANDSHAKES)]
        for connection in crowd:
            with contextlib.suppress(OSError):
                connection.sendall(b"P" * chance.randrange(2))
        return wire.Peer(crowd[0], 1).end()


@TABLE.rule("a payload of which only a part comes", SILENT, needs_member=True)
def broken_payload(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    with wire.greeted(target, address) as peer:
        whole = wire.frame(wire.PUSH_PULL, b"", bytes(target.chunk_bytes), incarnation=1)
        peer.send(whole[:-chance.randrange(1, target.chunk_bytes)])
        if chance.random() < 0.5:
            peer.reset()
    return after(target, address)


@TABLE.rule("exchanges of nobody, each with most of a mebibyte", SILENT, needs_member=True, is_slow=True)
def held_exchanges(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    with contextlib.ExitStack() as stack:
        for _ in range(64):
            peer = stack.enter_context(wire.greeted(target, address))
            peer.send(wire.frame(wire.EXCHANGE, b"", bytes(_MEBIBYTE), incarnation=1)[:-1])
        return after(target, address)


def _crowd(target: Target, chance: random.Random, kind: int, **hello) -> str:
    """Connections without number, each with most of a frame whose payload is to be dropped."""
    address = chance.choice(target.servers)
    began = wire.frame(kind, b"", bytes(_MEBIBYTE), incarnation=1, chunk=2)[:_BEGUN_BYTES]
    with contextlib.ExitStack() as stack:
        for _ in range(_CONNECTIONS):
            stack.enter_context(wire.greeted(target, address, **hello)).send(began)
        return after(target, address)


TABLE.add("workers without number", SILENT, lambda target, chance: _crowd(target, chance, wire.PUSH),
          needs_member=True, is_slow=True)
TABLE.add("servers without number", SILENT, lambda target, chance: _crowd(target, chance, wire.JOIN_SHARD, server=77),
          needs_member=True, is_slow=True)


@TABLE.rule("answers that nobody reads", SILENT, needs_member=True, is_slow=True)
def unread(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    with wire.greeted(target, address) as peer:
        peer.narrow()
        asked = b"".join(wire.frame(wire.PULL, incarnation=1, chunk=chunk, base_version=number)
                         for number in range(1000) for chunk in (0, 1))
        for _ in range(4):
            peer.send(asked)
        return after(target, address)


def after(target: Target, address: str) -> str:
    """What another connection to the server gets, while those of an attack are still open."""
    with wire.greeted(target, address, 7) as peer:
        return peer.answer()
