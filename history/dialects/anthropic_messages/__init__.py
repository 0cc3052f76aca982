"""Anthropic Messages: results of parallel calls in one user message, signed thinking returned unchanged."""

from history.dialects.anthropic_messages.http_api import HTTP_API as HTTP_API
from history.dialects.anthropic_messages.reply_decoder import FINAL_MARKS as FINAL_MARKS
from history.dialects.anthropic_messages.reply_decoder import PROVIDER as PROVIDER
from history.dialects.anthropic_messages.reply_decoder import decode_error as decode_error
from history.dialects.anthropic_messages.reply_decoder import decode_reply as decode_reply
from history.dialects.anthropic_messages.reply_decoder import finality as finality
from history.dialects.anthropic_messages.reply_decoder import stream_decoder as stream_decoder
from history.dialects.anthropic_messages.reply_encoder import encode_error as encode_error
from history.dialects.anthropic_messages.reply_encoder import encode_reply as encode_reply
from history.dialects.anthropic_messages.reply_encoder import stream_encoder as stream_encoder
from history.dialects.anthropic_messages.request_decoder import decode_request as decode_request
from history.dialects.anthropic_messages.request_encoder import encode as encode
