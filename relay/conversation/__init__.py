"""What a person can do in a conversation, whichever door they came through: one function per verb.

Every verb checks, writes and returns at once; an answer is begun (`runs.start`), never waited for. Only the owner
writes: callers check that. `after` is the entry that the writer saw last, and `run` the answer that was on
its way there: a message continues the end of that answer, and waits in the queue until it has ended. If another user or
tab has continued from the same entry, the message becomes a branch beside theirs.
"""

from relay.conversation.compression import undo_summary as undo_summary
from relay.conversation.controls import delete as delete
from relay.conversation.controls import fork as fork
from relay.conversation.controls import rename as rename
from relay.conversation.controls import rollback as rollback
from relay.conversation.controls import stop as stop
from relay.conversation.controls import switch as switch
from relay.conversation.drafts import Draft as Draft
from relay.conversation.drafts import NotPossible as NotPossible
from relay.conversation.drafts import SendResult as SendResult
from relay.conversation.edit_and_retry import answer as answer
from relay.conversation.edit_and_retry import continue_ as continue_
from relay.conversation.edit_and_retry import edit as edit
from relay.conversation.edit_and_retry import regenerate as regenerate
from relay.conversation.queue import list_queued as list_queued
from relay.conversation.queue import unqueue as unqueue
from relay.conversation.sending import send as send
from relay.conversation.sending import send_queued as send_queued
from relay.conversation.sending import start_session as start_session
from relay.conversation.summaries import compress as compress
