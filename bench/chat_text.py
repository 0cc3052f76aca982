"""What the model of the chat benchmark says: 200 tokens in paragraphs, a list and some emphasis, never twice the same.

If all answers were alike, what was rendered for one would be remembered for the others.
"""

from __future__ import annotations

from collections.abc import Iterator

COUNT = 200
TOKENS_PER_SECOND = 20


def tokens(answer: int) -> Iterator[str]:
    for number in range(COUNT):
        word = f"word{number}in{answer}"
        word = f"**{word}**" if number % 17 == 5 else word
        if number % 40 == 39:
            yield f"{word}.\n\n"
        elif 80 <= number < 120 and number % 8 == 0:
            yield f"\n- {word} "
        else:
            yield f"{word} "
