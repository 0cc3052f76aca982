"""OpenAI Chat Completions and compatible servers: one message per result, arguments as JSON text."""

from history.dialects.openai_chat.http_api import HTTP_API as HTTP_API
from history.dialects.openai_chat.reply_decoder import FINAL_MARKS as FINAL_MARKS
from history.dialects.openai_chat.reply_decoder import decode_reply as decode_reply
from history.dialects.openai_chat.reply_decoder import finality as finality
from history.dialects.openai_chat.reply_decoder import stream_decoder as stream_decoder
from history.dialects.openai_chat.reply_encoder import encode_reply as encode_reply
from history.dialects.openai_chat.reply_encoder import stream_encoder as stream_encoder
from history.dialects.openai_chat.request_decoder import decode_request as decode_request
from history.dialects.openai_chat.request_encoder import encode as encode
from history.dialects.openai_common import PROVIDER as PROVIDER
from history.dialects.openai_common import decode_error as decode_error
from history.dialects.openai_common import encode_error as encode_error
