"""Import formats, in the order in which they are tried: the more specific first, because many files have `messages`."""

from history.formats.readers import chatgpt, claude_ai, claude_code, codex, gemini_cli, nplt, requests
from history.formats.sources import Reader as Reader, Sample

READERS: tuple[Reader, ...] = (
    claude_code.READER,
    codex.READER,
    gemini_cli.READER,
    requests.CHECKPOINT_READER,
    nplt.READER,
    chatgpt.READER,
    claude_ai.READER,
    requests.SHAREGPT_READER,
    requests.READER,
)


def reader_for(sample: Sample) -> Reader | None:
    return next((reader for reader in READERS if reader.recognises(sample)), None)
