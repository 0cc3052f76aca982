"""The vendors' languages, both ways: JSON and bytes in, values out; no I/O, no Django, no key and no host.

A dialect is a module with the functions of `Dialect`. `encode` writes a context as a request; `stream_decoder`,
`decode_reply` and `decode_error` read what comes back; `decode_request`, `encode_reply`, `stream_encoder` and
`encode_error` are the other side of the table, for clients that speak the language. What a language cannot carry is
named in `losses`. docs/dialects.md lists the rules and the tests that show them.
"""

from history.dialects import anthropic_messages, gemini_generate, openai_chat, openai_responses
from history.dialects.types import CallOptions as CallOptions
from history.dialects.types import DecodedRequest as DecodedRequest
from history.dialects.types import Dialect as Dialect
from history.dialects.types import DialectError as DialectError
from history.dialects.types import Encoded as Encoded
from history.dialects.types import Loss as Loss
from history.dialects.types import LossCode as LossCode
from history.dialects.types import StreamDecoder as StreamDecoder
from history.dialects.types import StreamEncoder as StreamEncoder
from history.dialects.types import Switches as Switches
from history.dialects.types import context_of as context_of

DIALECTS: dict[str, Dialect] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic-messages": anthropic_messages,
    "gemini-generate": gemini_generate,
}
