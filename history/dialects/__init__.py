"""Wire formats of vendors: requests, replies, streams and errors, without I/O. See docs/internals/dialects.md."""

from history.dialects.anthropic_messages import DIALECT as ANTHROPIC_MESSAGES
from history.dialects.dialect import Dialect as Dialect
from history.dialects.gemini_generate import DIALECT as GEMINI_GENERATE
from history.dialects.openai_chat import DIALECT as OPENAI_CHAT
from history.dialects.openai_responses import DIALECT as OPENAI_RESPONSES
from history.dialects.types import (
    CallOptions as CallOptions,
    DecodedRequest as DecodedRequest,
    DialectError as DialectError,
    EncodedRequest as EncodedRequest,
    Loss as Loss,
    LossCode as LossCode,
    Switches as Switches,
    context_of as context_of,
)

DIALECTS = {
    "openai-chat": OPENAI_CHAT,
    "openai-responses": OPENAI_RESPONSES,
    "anthropic-messages": ANTHROPIC_MESSAGES,
    "gemini-generate": GEMINI_GENERATE,
}
DEFAULT_DIALECT = "openai-chat"  # the dialect of most servers, and of errors for unknown clients
