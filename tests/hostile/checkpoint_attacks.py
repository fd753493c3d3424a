# SPDX-License-Identifier: Apache-2.0
"""Folders of checkpoints that somebody else has written into, read by `pushpull checkpoint`. Checksums are right where
the attack is not about them: docs/decisions/0009-checkpoint-format.md, written a second time."""
import contextlib
import ctypes
import os
import pathlib
import random
import resource
import shutil
import struct
import subprocess
import tempfile
from typing import Callable, NamedTuple

import frames
import job
from rules import ANSWERED, REFUSED, Table, Target

TABLE = Table("checkpoint", "docs/decisions/0009-checkpoint-format.md")
RULES = TABLE.rules
_SAMPLE = pathlib.Path(__file__).resolve().parents[1] / "data/checkpoints/v1/step-000000000042"
_READ_SECONDS = 20.0
_SANITIZER_EXIT = 99
_HEADER_BYTES = 64


class Section(NamedTuple):
    name: bytes
    rule: int
    body: bytes


def _seeded(data: bytes, seed: int) -> int:
    xxhash = ctypes.CDLL("libxxhash.so.0")
    xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
    return xxhash.XXH3_64bits_withSeed(data, ctypes.c_size_t(len(data)), ctypes.c_uint64(seed))


def sections_of(manifest: bytes) -> list[Section]:
    found, at = [], _HEADER_BYTES
    while at < len(manifest):
        size = struct.unpack_from("<H", manifest, at)[0]
        name = manifest[at + 2:at + 2 + size]
        rule, length = struct.unpack_from("<BQ", manifest, at + 2 + size)
        begin = at + 2 + size + 17
        found.append(Section(name, rule, manifest[begin:begin + length]))
        at = begin + length
    return found


def manifest_of(header: bytes, sections: list[Section]) -> bytes:
    """With every checksum right."""
    body = b""
    for section in sections:
        head = struct.pack("<H", len(section.name)) + section.name + struct.pack("<BQ", section.rule, len(section.body))
        body += head + struct.pack("<Q", _seeded(section.body, frames.checksum(head))) + section.body
    start = header[:24] + struct.pack("<QQ", len(body), frames.checksum(body)) + header[40:56]
    return start + struct.pack("<Q", frames.checksum(start)) + body


def read(folder: pathlib.Path, *words: str) -> str:
    """What `pushpull checkpoint` makes of it; AssertionError when it crashes, hangs or grows."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PUSHPULL_")}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        environment[name] = ":".join([environment.get(name, ""), f"exitcode={_SANITIZER_EXIT}"])
    try:
        done = subprocess.run(
            [job.PUSHPULL, "checkpoint", *words, folder], env=environment, capture_output=True, check=False,
            timeout=_READ_SECONDS * job.PATIENCE, preexec_fn=_bound if job.PATIENCE == 1 else None)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"checkpoint {words} hangs") from None
    assert done.returncode in range(0, _SANITIZER_EXIT), f"checkpoint {words} ended with {done.returncode}: {done.stderr!r}"
    assert b"\x1b" not in done.stdout + done.stderr, "checkpoint prints what a terminal acts on"
    return REFUSED if done.returncode else ANSWERED


def _bound() -> None:
    limit = 4096 << 20  # of addresses, where threads' stacks and arenas count
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # No core of a program that is meant to be attacked.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def attack_on(damage: Callable[[pathlib.Path, random.Random], None]) -> Callable[[Target, random.Random], str]:
    """Copies the sample, damages it, and lists and verifies it."""
    def attack(target: Target, chance: random.Random) -> str:
        with tempfile.TemporaryDirectory(dir=target.folder) as top:
            folder = pathlib.Path(top) / _SAMPLE.name
            shutil.copytree(_SAMPLE, folder)
            damage(folder, chance)
            read(pathlib.Path(top), "list", "--json")
            return read(pathlib.Path(top), "verify")
    return attack


def _add(name: str, damage: Callable[[pathlib.Path, random.Random], None], answers=REFUSED) -> None:
    TABLE.add(name, answers, attack_on(damage))


def _change(name: bytes, change: Callable[[bytes, random.Random], bytes]) -> Callable[[pathlib.Path, random.Random], None]:
    """Of the body of a section."""
    def damage(folder: pathlib.Path, chance: random.Random) -> None:
        path = folder / "MANIFEST"
        data = path.read_bytes()
        changed = [section._replace(body=change(section.body, chance)) if section.name == name else section
                   for section in sections_of(data)]
        path.write_bytes(manifest_of(data[:_HEADER_BYTES], changed))
    return damage


def _count(value: int) -> Callable[[bytes, random.Random], bytes]:
    return lambda body, chance: struct.pack("<Q", value) + body[8:]


def _noise(body: bytes, chance: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(chance.randrange(1, 5)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(body: bytes, chance: random.Random) -> bytes:
    return body[:chance.randrange(len(body))]


def _shards(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob("*.chunks"))


def _named(name: bytes) -> Callable[[bytes, random.Random], bytes]:
    """The first data file has another name."""
    def change(body: bytes, chance: random.Random) -> bytes:
        del chance
        entry_bytes, name_bytes = struct.unpack_from("<IH", body, 8)
        rest = body[14 + name_bytes:]
        return body[:8] + struct.pack("<IH", entry_bytes - name_bytes + len(name), len(name)) + name + rest
    return change


def _replace_shard(make: Callable[[pathlib.Path], None]) -> Callable[[pathlib.Path, random.Random], None]:
    def damage(folder: pathlib.Path, chance: random.Random) -> None:
        path = chance.choice(_shards(folder))
        path.unlink()
        make(path)
    return damage


def _replace_manifest(make: Callable[[pathlib.Path], None]) -> Callable[[pathlib.Path, random.Random], None]:
    def damage(folder: pathlib.Path, chance: random.Random) -> None:
        del chance
        (folder / "MANIFEST").unlink()
        make(folder / "MANIFEST")
    return damage


def _sparse(path: pathlib.Path) -> None:
    """1 TiB of nothing."""
    with contextlib.suppress(OSError), path.open("wb") as file:
        file.truncate(1 << 40)


def _truncate(folder: pathlib.Path, chance: random.Random) -> None:
    path = chance.choice([*_shards(folder), folder / "MANIFEST"])
    os.truncate(path, chance.randrange(path.stat().st_size))


def _flip(folder: pathlib.Path, chance: random.Random) -> None:
    path = chance.choice([*_shards(folder), folder / "MANIFEST"])
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _header(at: int, value: int) -> Callable[[pathlib.Path, random.Random], None]:
    """Of the manifest, with the header's checksum right."""
    def damage(folder: pathlib.Path, chance: random.Random) -> None:
        del chance
        data = bytearray((folder / "MANIFEST").read_bytes())
        struct.pack_into("<Q", data, at, value)
        struct.pack_into("<Q", data, 56, frames.checksum(bytes(data[:56])))
        (folder / "MANIFEST").write_bytes(data)
    return damage


def _record(at: int, form: str, value: int) -> Callable[[pathlib.Path, random.Random], None]:
    """A field of a data file's first record, with the record's checksum right."""
    def damage(folder: pathlib.Path, chance: random.Random) -> None:
        path = chance.choice(_shards(folder))
        data = bytearray(path.read_bytes())
        struct.pack_into("<" + form, data, _HEADER_BYTES + at, value)
        struct.pack_into("<Q", data, _HEADER_BYTES + 120, frames.checksum(bytes(data[_HEADER_BYTES:_HEADER_BYTES + 120])))
        path.write_bytes(data)
    return damage


def _crowd(folder: pathlib.Path, chance: random.Random) -> None:
    del chance
    for number in range(500):
        (folder.parent / f"step-{number + 100:012}").mkdir()
    (folder.parent / "step-999999999999999999999999").mkdir()
    (folder.parent / "step-\x1b[2J").mkdir()


_add("a file that ends early", _truncate)
_add("a bit that has changed", _flip)
_add("manifest: bytes after the header, 2^63", _header(24, 2**63))
_add("manifest: bytes after the header, 0", _header(24, 0))
_add("manifest: version 255", _header(8, 255))
for _name in (b"job", b"tensors", b"files", b"chunks", b"system"):
    _text = _name.decode()
    _add(f"manifest: {_text} with other bytes", _change(_name, _noise), (REFUSED, ANSWERED))
    _add(f"manifest: {_text} that ends early", _change(_name, _cut), (REFUSED, ANSWERED))
_add("manifest: a job named with what a terminal acts on", _change(b"job", lambda body, chance: body[:2] + b"\x1b" + body[3:]))
for _name in (b"tensors", b"files", b"chunks", b"system"):
    for _value in (2**32, 2**63, 2**64 - 1):
        _add(f"manifest: {_value} {_name.decode()}", _change(_name, _count(_value)))
for _path in (b"..", b"../MANIFEST", b"/etc/passwd", b"a/b", b"MANIFEST", b"", b"x" * 1024, b"\x1b[2J", b"a\0b"):
    _add(f"manifest: a file named {_path[:20]!r}", _change(b"files", _named(_path)))
_add("manifest: a pipe", _replace_manifest(os.mkfifo))
_add("manifest: a folder", _replace_manifest(lambda path: path.mkdir()))
_add("manifest: 1 TiB", _replace_manifest(_sparse))
_add("manifest: a link to itself", _replace_manifest(lambda path: path.symlink_to(path)))
_add("manifest: a link to /dev/zero", _replace_manifest(lambda path: path.symlink_to("/dev/zero")))
_add("data file: a pipe", _replace_shard(os.mkfifo))
_add("data file: a folder", _replace_shard(lambda path: path.mkdir()))
_add("data file: 1 TiB", _replace_shard(_sparse))
_add("data file: a link to itself", _replace_shard(lambda path: path.symlink_to(path)))
_add("data file: a link to /dev/zero", _replace_shard(lambda path: path.symlink_to("/dev/zero")))
_add("data file: not there", _replace_shard(lambda path: None))
_add("record: sections of 4 GiB", _record(60, "I", 2**32 - 1))
_add("record: a value of 4 GiB", _record(64, "I", 2**32 - 1))
_add("record: a state of 4 GiB", _record(68, "I", 2**32 - 1))
_add("record: of a chunk that is not there", _record(8, "Q", 2**64 - 1))
_add("record: of a tensor that is not there", _record(4, "I", 2**32 - 1))
_add("folders without number", _crowd, (ANSWERED, REFUSED))
