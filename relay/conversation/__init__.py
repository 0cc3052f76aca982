"""What a user or program can do in a conversation: one function for each action.

Every function checks, writes and returns at once; an answer is started (`runs.start_run`), never waited for. Only the
owner writes: callers check that. `after` is the entry that the writer saw last, and `run` the answer that was being
written there: a message continues the end of that answer, and waits in the queue until it has ended. If another client
has continued from the same entry, the message becomes a branch beside it.
"""

from relay.conversation.controls import (
    compress as compress,
    delete as delete,
    fork as fork,
    rename as rename,
    rollback as rollback,
    stop as stop,
    switch as switch,
    undo_summary as undo_summary,
)
from relay.conversation.queue import send_queued as send_queued, unqueue as unqueue
from relay.conversation.sending import (
    answer as answer,
    continue_ as continue_,
    edit as edit,
    regenerate as regenerate,
    send as send,
    start_session as start_session,
)
from relay.conversation.turns import (
    MessageDraft as MessageDraft,
    NotPossible as NotPossible,
    SendResult as SendResult,
    ViewerPosition as ViewerPosition,
)
