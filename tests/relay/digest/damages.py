"""Kinds of damage to a journal file, for tests and for `python -m faults damage`. No Django."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from relay.gateway.journal import record_framing


def record_starts(data: bytes) -> list[int]:
    """Where each record of a journal file begins, and the end."""
    found = [record_framing.START]
    while found[-1] < len(data):
        length = int.from_bytes(data[found[-1] + 4 : found[-1] + 8], "little")
        found.append(found[-1] + record_framing.FRAME_SIZE + length)
    return found


Damage = Callable[[bytearray, random.Random], None]


def flip_bits(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 2, 20))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut_out(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.choice((1, 100, 5_000))]


def cut_off(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def fill_with_zeros(data: bytearray, chance: random.Random) -> None:
    start, size = chance.randrange(len(data)), chance.choice((16, 512, 4_096))
    data[start : start + size] = bytes(len(data[start : start + size]))


def insert_bytes(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data))
    data[at:at] = chance.randbytes(chance.choice((1, 30, 5_000)))


def append_bytes(data: bytearray, chance: random.Random) -> None:
    data += chance.choice((bytes(4_096), chance.randbytes(100), bytes(data)))


def end_lines_with_crlf(data: bytearray, _chance: random.Random) -> None:
    data[:] = data.replace(b"\n", b"\r\n")


def _pieces(data: bytearray) -> list[bytes]:
    at = record_starts(bytes(data))
    return [bytes(data[: at[0]]), *(bytes(data[start:end]) for start, end in itertools.pairwise(at))]


def swap_records(data: bytearray, chance: random.Random) -> None:
    pieces = _pieces(data)
    one, other = chance.choices(range(len(pieces)), k=2)
    pieces[one], pieces[other] = pieces[other], pieces[one]
    data[:] = b"".join(pieces)


def double_records(data: bytearray, chance: random.Random) -> None:
    pieces = _pieces(data)
    one, to = chance.randrange(len(pieces)), chance.randrange(1, len(pieces) + 1)
    pieces.insert(to, pieces[one])
    data[:] = b"".join(pieces)


def remove_records(data: bytearray, chance: random.Random) -> None:
    pieces = _pieces(data)
    for _ in range(min(chance.choice((1, 2, 6)), len(pieces) - 1)):
        del pieces[chance.randrange(1, len(pieces))]
    data[:] = b"".join(pieces)


def twice(data: bytearray, chance: random.Random) -> None:
    for _ in range(2):
        chance.choice((flip_bits, cut_out, cut_off, fill_with_zeros, insert_bytes))(data, chance)
        data += b"" if data else b"\0"


DAMAGES: list[Damage] = [
    *(flip_bits, cut_out, cut_off, fill_with_zeros, insert_bytes, append_bytes, end_lines_with_crlf),
    *(swap_records, double_records, remove_records, twice),
]
