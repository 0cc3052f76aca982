"""Estimate of the memory that a JSON body takes once it is parsed and read, without parsing it.

A body of 8 MB that consists of tiny objects takes some hundred megabytes as Python objects. What counts is its
structure: lists and objects, each of which may become an entry, and the values in them. Text takes little more than its
length.
"""

from __future__ import annotations

from relay.gateway.call.bodies import outside_strings

# Measured with tracemalloc: a message of one letter takes 4,200 bytes until it is stored, as parsed JSON, as an entry
# and as rows. A list or an object within a message takes 80 to 500.
BYTES_PER_ENTRY = 2_500
BYTES_PER_CONTAINER = 1_700
BYTES_PER_VALUE = 170
COPIES_OF_TEXT = 3
# docs/settings.md: digestion stays below 64 MB with the default of PARLEY_MAX_DIGEST_MB.
MEMORY_PER_BYTE = 8
# Shorter events of a stream are not looked at: each is parsed alone.
SHORT_EVENT = 64 * 1024
# What each entry of a conversation has, in one dialect or another. Within a string the quotes are escaped.
ENTRIES = (b'"role"', b'_call"', b'_output"')


def is_too_heavy(body: bytes, *, most: int) -> bool:
    """Whether reading a body takes more memory than a text of `most` bytes may take."""
    return memory_of(body) > MEMORY_PER_BYTE * most


def is_reply_too_heavy(reply: bytes, *, most: int) -> bool:
    """The same of a reply, which may be a stream of events."""
    if reply.lstrip()[:1] in (b"{", b"["):
        return is_too_heavy(reply, most=most)
    return any(is_too_heavy(line, most=most) for line in reply.split(b"\n") if len(line) > SHORT_EVENT)


def memory_of(body: bytes) -> int:
    """An upper estimate in bytes."""
    # Nearly every body is light even if the brackets and commas in its texts are counted.
    estimate = _structure(body)
    if estimate > COPIES_OF_TEXT * len(body):
        estimate = sum(map(_structure, outside_strings(body)))
    entries = sum(map(body.count, ENTRIES))
    return COPIES_OF_TEXT * len(body) + BYTES_PER_ENTRY * entries + estimate


def _structure(text: bytes) -> int:
    return BYTES_PER_CONTAINER * (text.count(b"{") + text.count(b"[")) + BYTES_PER_VALUE * text.count(b",")
