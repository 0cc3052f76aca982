"""Block quotes, with a limit on the lines that are looked at.

The library's rule looks for the end of a quote down to the next empty line, because any line may continue the last
paragraph of the quote. Where such a line does not, the quote ends early and the next one begins the search anew: text
like `> # a` and `b` in turns takes quadratic time. So the lines are counted, and quotes beyond the limit are text.
"""

from __future__ import annotations

from markdown_it.rules_block import StateBlock, blockquote

# Ordinary text looks at each of its lines about as often as quotes are nested in it.
LOOKS_PER_LINE = 8
MIN_LOOKS = 200


def parse_quote(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule at `>`."""
    if silent or state.src[state.bMarks[start_line] + state.tShift[start_line]] != ">":
        return blockquote(state, start_line, end_line, silent)
    if "quote_looks" not in state.env:
        state.env["quote_looks"] = MIN_LOOKS + LOOKS_PER_LINE * state.lineMax
        state.env["paragraph_ends"] = _paragraph_ends(state)
    state.env["quote_looks"] -= min(end_line, state.env["paragraph_ends"][start_line]) - start_line
    return state.env["quote_looks"] > 0 and blockquote(state, start_line, end_line, silent)


def _paragraph_ends(state: StateBlock) -> list[int]:
    """For each line, the next empty line."""
    ends = [state.lineMax] * (state.lineMax + 1)
    for line in range(state.lineMax - 1, -1, -1):
        ends[line] = line if state.isEmpty(line) else ends[line + 1]
    return ends
