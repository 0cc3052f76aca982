"""Limits of time and size for requests. docs/setup.md explains them."""

# Any sender may send this much to any path: enough for a sign-in form or a small API call.
ANYONE_BYTES = 64 * 1024
# A known sender, on paths that name no limit of their own. Django reads at most 2.5 MB of form fields.
KNOWN_BYTES = 3 * 1024 * 1024

# One message of a websocket. Daphne has the same limit of its own.
MOST_FRAME_BYTES = 1024 * 1024

# Frames of one websocket, pings and fragments included: at once, and in each second. A client sends a few.
FRAMES_AT_ONCE, FRAMES_PER_SECOND = 2_000, 200

HEADER_SECONDS = 10.0
# A body may take this long, and longer if bytes keep coming at this rate.
BODY_SECONDS = 30.0
BODY_BYTES_PER_SECOND = 10_000
# After an early answer the rest of a body is read and dropped for a moment. Closing at once would reset the connection,
# and the client would never see the answer.
LINGER_SECONDS = 2.0

# Idle connections between two requests. Longer than the 60 seconds for which common proxies keep theirs.
KEEP_ALIVE_SECONDS = 75
