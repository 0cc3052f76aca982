"""Media types of uploaded files, detected from their first bytes."""

from pathlib import PurePath

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"
PLAIN = "text/plain"
_TEXTS = {".csv": "text/csv", ".md": "text/markdown", ".markdown": "text/markdown"}  # every other text is text/plain
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    ((b"GIF87a", b"GIF89a"), "image/gif"),
    (b"%PDF-", PDF),
)


def media_type_of(content: bytes, *, name: str = "") -> str | None:
    """One of the few types that Parley shows and sends; None for everything else."""
    for beginning, media_type in _BEGINNINGS:
        if content.startswith(beginning):
            return media_type
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return _TEXTS.get(PurePath(name).suffix.lower(), PLAIN) if is_text(content) else None


def is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
