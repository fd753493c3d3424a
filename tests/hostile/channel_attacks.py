# SPDX-License-Identifier: Apache-2.0
"""The grpc channel of a server: frames in messages of a stream, docs/decisions/0033-grpc-channel.md. Only where members
use it (`--channel grpc`)."""
import contextlib
import random
import struct

import http2
import wire
from rules import ANSWERED, CLOSED, REFUSED, SILENT, Table, Target

TABLE = Table("server", "docs/decisions/0033-grpc-channel.md")
RULES = TABLE.rules
_FRAMES = "/pushpull.v1.DataPlane/Frames"
_ENDED = (REFUSED, CLOSED)
_STREAMS = 200


def hello(target: Target) -> bytes:
    name = target.job if target.is_member else "another"
    return wire.frame(wire.HELLO, wire.hello_meta(name), incarnation=1)


def stream(target: Target, chance: random.Random, *bodies: bytes, **headers: str) -> str:
    """By the first message that comes back."""
    with http2.connected(target, chance.choice(target.servers)) as peer:
        peer.call(_FRAMES, **headers)
        for body in bodies:
            peer.data(http2.message(body))
        return peer.answer()


def after_hello(target: Target, chance: random.Random, *bodies: bytes) -> str:
    """Ends with a ping, whose answer is ANSWERED; a refusal is that too."""
    with http2.connected(target, chance.choice(target.servers)) as peer:
        peer.call(_FRAMES)
        peer.data(http2.message(hello(target)))
        if not peer.first_message():
            return CLOSED
        for body in bodies:
            peer.data(http2.message(body))
        peer.data(http2.message(wire.frame(wire.PING, incarnation=1)))
        answer = peer.answer()
        return CLOSED if answer in _ENDED else answer


def raw(target: Target, data: bytes) -> str:
    with http2.connected(target, random.Random(len(data)).choice(target.servers)) as peer:
        peer.send(data)
        return peer.end()


def _add_streams() -> None:
    def add(name: str, answers, make) -> None:
        TABLE.add(f"channel: {name}", answers, lambda target, chance: stream(target, chance, make(target, chance)))
    add("noise instead of frames", _ENDED, lambda target, chance: chance.randbytes(5000))
    add("a first frame that is no hello", _ENDED, lambda target, chance: wire.frame(wire.PULL))
    add("a hello of another job", (ANSWERED, *_ENDED), lambda target, chance: wire.frame(
        wire.HELLO, wire.hello_meta("other")))
    add("a hello of noise", _ENDED, lambda target, chance: wire.frame(wire.HELLO, chance.randbytes(300)))
    add("a message of 3 MiB", _ENDED, lambda target, chance: bytes(3 << 20))
    add("a payload longer than a frame may have", _ENDED, lambda target, chance: wire.header(
        wire.PUSH, payload_bytes=(1 << 20) + 1))


def _add_members() -> None:
    def add(name: str, answers, *bodies: bytes) -> None:
        TABLE.add(f"channel: {name}", answers, lambda target, chance: after_hello(target, chance, *bodies),
                  needs_member=True)
    for field, value in (("magic", 7), ("version", 9), ("type", 99), ("flags", 128), ("codec", 200), ("meta_bytes", 5000)):
        add(f"{field} is {value}", CLOSED, wire.header(wire.PULL, **{"incarnation": 1, field: value}))
    add("a frame in three messages", http2.ANY, *[wire.frame(wire.PULL, incarnation=1)[at:at + 50] for at in (0, 50, 100)])
    add("a frame of another worker", CLOSED, wire.frame(wire.PULL, worker=0, incarnation=1))
    add("type 9, which no worker sends", CLOSED, wire.frame(wire.PUBLISHED, incarnation=1))
    add("a push of nobody", ANSWERED, wire.frame(wire.PUSH, b"", bytes(80_000), incarnation=1))
    add("a chunk that is not there", ANSWERED, wire.frame(wire.PULL, incarnation=1, chunk=2**63))
    add("2,000 frames in a message", ANSWERED, wire.frame(wire.PULL, incarnation=1, chunk=9) * 2000)
    add("an empty message", http2.ANY, b"")


@TABLE.rule("channel: a packed message", _ENDED)
def packed(target: Target, chance: random.Random) -> str:
    with http2.connected(target, chance.choice(target.servers)) as peer:
        peer.call(_FRAMES, grpc_encoding="gzip")
        peer.data(http2.message(struct.pack("<Q", 0), flag=1))
        return peer.answer()


@TABLE.rule("channel: streams without a hello", SILENT, is_slow=True)
def silent_streams(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    with contextlib.ExitStack() as stack:
        for _ in range(_STREAMS):
            stack.enter_context(http2.connected(target, address)).call(_FRAMES)
        with http2.connected(target, address) as peer:
            return peer.end()


_add_streams()
_add_members()
http2.add_http2_rules(TABLE, _FRAMES, _FRAMES, raw)
