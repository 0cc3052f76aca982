"""What a user or program can do in a conversation: one function for each action.

Every function checks, writes and returns at once; an answer is started (`runs.start_run`), never waited for. Only the
owner writes: callers check that. `after` is the entry that the writer saw last, and `run` the answer that was being
written there: a message continues the end of that answer, and waits in the queue until it has ended. If another client
has continued from the same entry, the message becomes a branch beside it.
"""

from relay.conversation.controls import compress as compress
from relay.conversation.controls import delete as delete
from relay.conversation.controls import fork as fork
from relay.conversation.controls import rename as rename
from relay.conversation.controls import rollback as rollback
from relay.conversation.controls import stop as stop
from relay.conversation.controls import switch as switch
from relay.conversation.controls import undo_summary as undo_summary
from relay.conversation.queue import send_queued as send_queued
from relay.conversation.queue import unqueue as unqueue
from relay.conversation.sending import answer as answer
from relay.conversation.sending import continue_ as continue_
from relay.conversation.sending import edit as edit
from relay.conversation.sending import regenerate as regenerate
from relay.conversation.sending import send as send
from relay.conversation.sending import start_session as start_session
from relay.conversation.turns import MessageDraft as MessageDraft
from relay.conversation.turns import NotPossible as NotPossible
from relay.conversation.turns import SendResult as SendResult
from relay.conversation.turns import ViewerPosition as ViewerPosition
