"""Anthropic Messages: results of parallel calls in one user message, signed thinking returned as it came."""

from history.dialects.anthropic_messages.encoding import encode as encode
from history.dialects.anthropic_messages.http_api import HTTP_API as HTTP_API
from history.dialects.anthropic_messages.replies import PROVIDER as PROVIDER
from history.dialects.anthropic_messages.replies import decode_error as decode_error
from history.dialects.anthropic_messages.replies import decode_reply as decode_reply
from history.dialects.anthropic_messages.replies import encode_error as encode_error
from history.dialects.anthropic_messages.replies import encode_reply as encode_reply
from history.dialects.anthropic_messages.requests import decode_request as decode_request
from history.dialects.anthropic_messages.streams import FINAL_MARKS as FINAL_MARKS
from history.dialects.anthropic_messages.streams import finality as finality
from history.dialects.anthropic_messages.streams import stream_decoder as stream_decoder
from history.dialects.anthropic_messages.streams import stream_encoder as stream_encoder
