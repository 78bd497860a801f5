# SPDX-License-Identifier: Apache-2.0
"""Writes scalars as TensorBoard event files do, with nothing but the standard library."""

import struct

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def _masked_crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def _chunk(field, data):
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def record(data):
    length = struct.pack("<Q", len(data))
    return (
        length
        + struct.pack("<I", _masked_crc32c(length))
        + data
        + struct.pack("<I", _masked_crc32c(data))
    )


def scalar(tag, step, value, wall_time=1796045719.5):
    name = tag if isinstance(tag, bytes) else tag.encode()
    summary = _chunk(1, _chunk(1, name) + b"\x15" + struct.pack("<f", value))
    return record(
        b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _chunk(5, summary)
    )


def header(wall_time=1796045719.0):
    return record(b"\x09" + struct.pack("<d", wall_time) + _chunk(3, b"brain.Event:2"))


class EventWriter:
    def __init__(self, folder, name="events.out.tfevents.1796045719.host"):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / name
        self._file = self.path.open("ab", buffering=0)
        self._file.write(header())

    def add(self, *args, **options):
        self._file.write(scalar(*args, **options))

    def close(self):
        self._file.close()
