"""Parser for entry and blob lines: checked values for the rows."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from history.db.bulk import fit_text
from history.db.packing import MissingBlob, attachments_of, blobs_in, dump, unpack
from history.entries import Entry, JsonDict, JsonObject
from history.formats.base import FormatError
from history.formats.jsonl.lines import check_year, time_of
from history.formats.jsonl.owners import OwnerMap
from history.formats.jsonl.serialise import hash_of, mapping, parse_call, parse_dropped, whole
from history.formats.sources import MAX_CONVERSATION as MAX_BLOB
from history.formats.sources import MEGABYTE, check_values
from history.models import Blob
from history.models.seals import digest_of, seal_of
from history.record import projections
from history.text.lazy import gettext_noop as _


@dataclass(frozen=True, slots=True)
class RestoredEntry:
    """One entry to restore. `entry` is None if its texts were dropped."""

    seq: int
    parent: int
    moved: bool
    created_at: datetime
    seal: bytes
    digest: bytes
    columns: JsonObject
    entry: Entry | None = None
    body: str | None = None
    salt: bytes | None = None
    blobs: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()  # attachments without bytes
    calls: Sequence[JsonDict] = ()

    @property
    def kind(self) -> str:
        return str(self.columns["kind"])

    def follows(self, seal: bytes) -> bool:
        """Whether its seal follows from the seal before it and its content."""
        is_whole = self.body is None or self.digest == digest_of(self.salt or b"", self.body)
        return is_whole and self.seal == seal_of(
            seal, seq=self.seq, parent=self.parent, kind=self.kind, digest=self.digest
        )


class Payloads:
    """Blobs by hash: those of lines that were just read, and those that are stored already and that one may have."""

    KEPT = 64

    def __init__(self, owners: OwnerMap | None = None) -> None:
        self.owners = owners or OwnerMap()
        self.pending: dict[str, Blob] = {}  # to be stored with the next batch
        self.pending_bytes = 0
        self.recent: dict[str, bytes] = {}
        self._begun = bytearray()  # of a large one, which comes in several lines

    def add(self, line: JsonObject) -> None:
        """Raises FormatError if the bytes do not match their hash."""
        try:
            content = b64decode(line.get("data") or "", validate=True)
        except (TypeError, ValueError):
            raise FormatError(_("the data of a blob is not valid base64")) from None
        self._begun += content
        if line.get("more") and len(self._begun) <= MAX_BLOB:
            return
        content, self._begun = bytes(self._begun), bytearray()
        if len(content) > MAX_BLOB:
            raise FormatError(_("a blob is larger than %(size)s MB"), size=MAX_BLOB // MEGABYTE)
        name = sha256(content).hexdigest()
        if name != line.get("sha256"):
            raise FormatError(_("the blob %(name)s… was changed: its hash differs"), name=str(line.get("sha256"))[:12])
        kind = fit_text(Blob, "media_type", str(line.get("media_type") or "text/plain"))
        self.pending[name] = Blob(sha256=name, data=content, size=len(content), media_type=kind)
        self.pending_bytes += len(content)
        self.owners.add_file_blob(name)

    def take(self) -> list[Blob]:
        """Those that are to be stored; from here on they are looked for in the database."""
        blobs, self.pending, self.pending_bytes = list(self.pending.values()), {}, 0
        return blobs

    def __getitem__(self, name: str) -> bytes:
        if name in self.pending:
            return bytes(self.pending[name].data)
        if name not in self.recent:
            data = Blob.objects.filter(pk__in=self.owners.blobs([name])).values_list("data", flat=True).first()
            if data is None:
                raise MissingBlob(f"the blob {name} is missing")
            if len(self.recent) >= self.KEPT:
                self.recent.clear()
            self.recent[name] = bytes(data)
        return self.recent[name]

    def find_available(self, names: frozenset[str]) -> frozenset[str]:
        others = names - self.pending.keys()
        return names & self.pending.keys() | (self.owners.blobs(others) if others else frozenset())


def read_entry(line: JsonObject, payloads: Payloads) -> RestoredEntry:
    """Raises FormatError for an invalid line. Blobs must have been added before."""
    seq, parent = whole(line, "seq"), whole(line, "parent")
    common: JsonDict = {
        "seq": seq,
        "parent": parent,
        "moved": line.get("moved") is True,
        "created_at": time_of(line.get("created_at")),
        "seal": hash_of(line, "seal"),
    }
    if not common["seal"]:
        raise FormatError(_("entry %(seq)s has no seal"), seq=seq)
    if not parent < seq:
        raise FormatError(_("entry %(seq)s cannot follow entry %(parent)s"), seq=seq, parent=parent)
    if "dropped" not in line:
        return RestoredEntry(**common, **_content(line, seq, payloads))
    facts = mapping(line, "dropped")
    columns, calls = parse_dropped(facts), facts.get("calls", [])
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise FormatError(_("the calls of an entry must be a list of objects"))
    digest = hash_of(line, "digest")
    return RestoredEntry(**common, digest=digest, columns=columns, calls=[parse_call(call) for call in calls])


def _content(line: JsonObject, seq: int, payloads: Payloads) -> JsonDict:
    written, salt = line.get("body"), hash_of(line, "salt", size=16)
    body = written if isinstance(written, str) else dump(written)
    if body[:1] != "{":
        raise FormatError(_("entry %(seq)s has no body"), seq=seq)
    names = frozenset(blobs_in(body))
    try:
        blobs = {name: payloads[name] for name in names}
        if "$json_blob" in body or "\\u" in body:  # or spelled so that it is not seen here
            for content in blobs.values():
                check_values(content)
        entry = unpack(body, blobs)
        check_year(entry.at)
    except MissingBlob:
        raise FormatError(_("a text of entry %(seq)s is missing from the file"), seq=seq) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError(_("the body of entry %(seq)s cannot be read"), seq=seq) from None
    attached = attachments_of(entry)
    there = payloads.find_available(attached) if attached else attached
    return {
        "digest": hash_of(line, "digest") or digest_of(salt, body),
        "columns": projections.columns_of(entry),
        "entry": entry,
        "body": body,
        "salt": salt,
        "blobs": names | there,
        "missing": attached - there,
    }
