# SPDX-License-Identifier: Apache-2.0
"""Frames as bytes, for tests that write wrong ones (layout: docs/decisions/0002-frame-layout.md)."""
import ctypes
import struct

HEADER_BYTES = 128
PAYLOAD_BYTES_MAX = 1 << 20
HELLO = 1
PUSH = 6
PUSH_PULL = 8
PUBLISHED = 9
FLAG_PAYLOAD_CHECKSUM = 1
_CHECKED_BYTES = HEADER_BYTES - 8
_TYPE_AT = 6
_FLAGS_AT = 7
_CODEC_AT = 8
_PRIORITY_AT = 11
_META_BYTES_AT = 12
_PAYLOAD_BYTES_AT = 16
_CHUNK_AT = 48
_PAYLOAD_CHECKSUM_AT = 96


def checksum(data: bytes) -> int:
    """XXH3-64."""
    xxhash = ctypes.CDLL("libxxhash.so.0")
    xxhash.XXH3_64bits.restype = ctypes.c_uint64
    return xxhash.XXH3_64bits(data, ctypes.c_size_t(len(data)))


def signed(header: bytes) -> bytes:
    """The header with its own checksum made right."""
    return header[:_CHECKED_BYTES] + struct.pack("<Q", checksum(header[:_CHECKED_BYTES]))


def new_header(kind: int, meta_bytes: int, payload_bytes: int) -> bytes:
    start = struct.pack("<IHBBBBBBHHI", 0x75507550, 1, kind, 0, 0, 1, 1, 0, meta_bytes, 0,
                        payload_bytes)
    return signed(start.ljust(HEADER_BYTES, b"\0"))


class Frame:
    """One frame that a peer sent."""

    def __init__(self, header: bytes, body: bytes = b"") -> None:
        self.header = header
        self.body = body  # meta and payload

    @property
    def type(self) -> int:
        return self.header[_TYPE_AT]

    @property
    def has_checksum(self) -> bool:
        return self.header[_FLAGS_AT] & FLAG_PAYLOAD_CHECKSUM != 0

    @property
    def priority(self) -> int:
        return self.header[_PRIORITY_AT]

    @property
    def chunk(self) -> int:
        return struct.unpack_from("<Q", self.header, _CHUNK_AT)[0]

    @property
    def meta_bytes(self) -> int:
        return struct.unpack_from("<H", self.header, _META_BYTES_AT)[0]

    @property
    def payload_bytes(self) -> int:
        return struct.unpack_from("<I", self.header, _PAYLOAD_BYTES_AT)[0]

    def whole(self) -> bytes:
        return self.header + self.body

    def oversized(self) -> bytes:
        """Claims one byte more than a payload may have, in a header that is right otherwise."""
        changed = bytearray(self.header)
        struct.pack_into("<I", changed, _PAYLOAD_BYTES_AT, PAYLOAD_BYTES_MAX + 1)
        return signed(bytes(changed)) + self.body

    @property
    def codec(self) -> int:
        return self.header[_CODEC_AT]

    def with_codec(self, codec: int) -> bytes:
        """Says another codec, in a header that is right otherwise."""
        changed = bytearray(self.header)
        changed[_CODEC_AT] = codec
        return signed(bytes(changed)) + self.body

    def with_payload_byte(self, at: int, value: int) -> bytes:
        """One byte of the payload is another, and all checksums are right."""
        body = bytearray(self.body)
        body[self.meta_bytes + at] = value
        changed = bytearray(self.header)
        if self.has_checksum:
            struct.pack_into("<Q", changed, _PAYLOAD_CHECKSUM_AT, checksum(bytes(body[self.meta_bytes:])))
        return signed(bytes(changed)) + bytes(body)

    def with_byte(self, from_end: int, value: int) -> bytes:
        """One byte of the body is another, the last where `from_end` is 1; the header stays as it is:
        its checksum is of the header alone.
        """
        at = len(self.body) - from_end
        return self.header + self.body[:at] + bytes([value]) + self.body[at + 1:]
