# SPDX-License-Identifier: Apache-2.0
"""Shared memory that a server makes for a peer on its host, and that this peer writes into, cuts and fills as it likes:
docs/decisions/0031-shared-memory.md. What comes back is the library's choice; the job must not notice."""
import contextlib
import mmap
import os
import random
import re
import socket
import struct
from typing import Callable, Iterator, NamedTuple

import wire
from rules import ANSWERED, CLOSED, REFUSED, SILENT, Table, Target

TABLE = Table("server", "docs/decisions/0031-shared-memory.md")
RULES = TABLE.rules
_ANY = (ANSWERED, CLOSED, REFUSED, SILENT)
_PIECE = 4096
_CROWD = 100


class Inbox:
    """A socket to which a server sends its memory."""

    def __init__(self, name: str, token: tuple[int, int]) -> None:
        self.offer = wire.text(name) + struct.pack("<QQ", *token)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(wire.WAIT_SECONDS)
        self.socket.bind(b"\0" + name.encode())

    def take(self) -> int:
        """The descriptor."""
        _, rights, _, _ = self.socket.recvmsg(64, socket.CMSG_SPACE(4))
        return struct.unpack("i", rights[0][2][:4])[0]


class Place(NamedTuple):
    """Where a server shares memory; it tells every peer that it admits, so that it is no secret."""
    host: int
    prefix: str  # of inboxes' names


def place_of(target: Target, address: str) -> Place:
    host = 0
    for _ in range(2):  # the second answer is to a peer of the same host
        with wire.connected(address, target.tls) as connection:
            admission = greet(wire.Peer(connection, 1), target, Place(host, ""), wire.text("x") + bytes(16))
        host = struct.unpack_from("<Q", admission, 10)[0]
    return Place(host, re.search(rb"job than ([\w-]+)", admission)[1].decode())


def greet(peer: wire.Peer, target: Target, place: Place, offer: bytes) -> bytes:
    """What a server answers to a hello with an inbox; ConnectionError: it is not admitted."""
    name = target.job if target.is_member else "another"
    peer.frame(wire.HELLO, wire.hello_meta(name, host=place.host, shm=offer))
    return peer.admission()


@contextlib.contextmanager
def inbox(place: Place, chance: random.Random) -> Iterator[Inbox]:
    opened = Inbox(f"{place.prefix}{chance.getrandbits(64):016x}", (chance.getrandbits(64), chance.getrandbits(64)))
    try:
        yield opened
    finally:
        opened.socket.close()


@contextlib.contextmanager
def shared(target: Target, address: str, chance: random.Random) -> Iterator[tuple[wire.Peer, int]]:
    """A peer with memory of the server, and its descriptor."""
    place = place_of(target, address)
    with inbox(place, chance) as opened, wire.connected(address, target.tls) as connection:
        peer = wire.Peer(connection, 1)
        admission = greet(peer, target, place, opened.offer)
        try:
            descriptor = opened.take()
        except TimeoutError:
            raise AssertionError(f"the server has sent no memory: {admission!r}") from None
        peer.has_ring = True
        try:
            yield peer, descriptor
        finally:
            os.close(descriptor)


def _add(name: str, attack: Callable[[wire.Peer, int, random.Random], None]) -> None:
    def played(target: Target, chance: random.Random) -> str:
        address = chance.choice(target.servers)
        with shared(target, address, chance) as (peer, descriptor):
            attack(peer, descriptor, chance)
            # Payloads are read from the memory now, and answers are written there.
            for chunk in (0, 1):
                peer.frame(wire.PUSH_PULL, chunk=chunk, payload_bytes=target.chunk_bytes)
                peer.frame(wire.PULL, chunk=chunk)
            return peer.answer()
    TABLE.add(f"shared memory: {name}", _ANY, played, needs_member=True)


def _fill(descriptor: int, chance: random.Random, byte: Callable[[], bytes]) -> None:
    """The first pages, where the positions are, and some others."""
    with mmap.mmap(descriptor, 0) as memory:
        pages = len(memory) // _PIECE
        for page in [*range(min(pages, 16)), *(chance.randrange(pages) for _ in range(64))]:
            memory[page * _PIECE:(page + 1) * _PIECE] = byte()


def _change_words(descriptor: int, chance: random.Random) -> None:
    """Numbers that are there: one more, one less, far away."""
    with mmap.mmap(descriptor, 0) as memory:
        for at in range(0, min(len(memory), 4 * _PIECE), 8):
            if chance.random() < 0.3:
                value = struct.unpack_from("<Q", memory, at)[0]
                struct.pack_into("<Q", memory, at, (value + chance.choice([1, -1, 2**31, 2**63])) % 2**64)


def _cut(descriptor: int) -> None:
    """The seals are to forbid it."""
    try:
        os.ftruncate(descriptor, 0)
    except PermissionError:
        return
    raise AssertionError("the memory can be cut while the server reads it")


def _punch(descriptor: int) -> None:
    with mmap.mmap(descriptor, 0) as memory, contextlib.suppress(OSError):
        memory.madvise(mmap.MADV_REMOVE)


_add("nothing wrong", lambda peer, descriptor, chance: None)
_add("ones", lambda peer, descriptor, chance: _fill(descriptor, chance, lambda: b"\xff" * _PIECE))
_add("zeros", lambda peer, descriptor, chance: _fill(descriptor, chance, lambda: bytes(_PIECE)))
_add("noise", lambda peer, descriptor, chance: _fill(descriptor, chance, lambda: chance.randbytes(_PIECE)))
_add("positions elsewhere", lambda peer, descriptor, chance: _change_words(descriptor, chance))
_add("cut", lambda peer, descriptor, chance: _cut(descriptor))
_add("holes", lambda peer, descriptor, chance: _punch(descriptor))
_add("credit for what was not sent", lambda peer, descriptor, chance: peer.frame(
    wire.CREDIT, struct.pack("<Q", chance.getrandbits(64))))
_add("credit of no number", lambda peer, descriptor, chance: peer.frame(wire.CREDIT, b"\xff"))
_add("regions of noise", lambda peer, descriptor, chance: peer.frame(
    wire.REGION, chance.randbytes(chance.randrange(1, 200))))
_add("a place in a region that is not there", lambda peer, descriptor, chance: peer.frame(
    wire.PUSH, struct.pack("<IQQ", chance.getrandbits(32), 2**63, chance.getrandbits(64)), flags=4,
    payload_bytes=1 << 20))
_add("a payload in a ring that has not got it", lambda peer, descriptor, chance: peer.frame(
    wire.PUSH, payload_bytes=1 << 20))


@TABLE.rule("shared memory: an inbox that is not there", SILENT, needs_member=True)
def no_inbox(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    place = place_of(target, address)
    name = chance.choice(["", "nobody", "x" * 107, "x" * 1000, "\0\0", "../x", place.prefix, place.prefix + "y" * 200])
    with wire.connected(address, target.tls) as connection:
        peer = wire.Peer(connection, 1)
        greet(peer, target, place, wire.text(name) + bytes(16))
        return peer.answer()


@TABLE.rule("shared memory: an inbox that nobody empties", SILENT, needs_member=True, is_slow=True)
def full_inbox(target: Target, chance: random.Random) -> str:
    address = chance.choice(target.servers)
    place = place_of(target, address)
    with inbox(place, chance) as opened, contextlib.ExitStack() as stack:
        for _ in range(_CROWD):
            greet(wire.Peer(stack.enter_context(wire.connected(address, target.tls)), 1), target, place, opened.offer)
        with wire.greeted(target, address, 7) as other:
            return other.answer()
