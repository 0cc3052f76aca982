"""OpenAI Chat Completions and compatible servers: one message per result, arguments as JSON text."""

from history.dialects.openai_chat.encoding import encode as encode
from history.dialects.openai_chat.http_api import HTTP_API as HTTP_API
from history.dialects.openai_chat.replies import PROVIDER as PROVIDER
from history.dialects.openai_chat.replies import decode_error as decode_error
from history.dialects.openai_chat.replies import decode_reply as decode_reply
from history.dialects.openai_chat.replies import encode_error as encode_error
from history.dialects.openai_chat.replies import encode_reply as encode_reply
from history.dialects.openai_chat.requests import decode_request as decode_request
from history.dialects.openai_chat.streams import FINAL_MARKS as FINAL_MARKS
from history.dialects.openai_chat.streams import finality as finality
from history.dialects.openai_chat.streams import stream_decoder as stream_decoder
from history.dialects.openai_chat.streams import stream_encoder as stream_encoder
