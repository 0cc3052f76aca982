"""Somebody to talk to from the first start on."""

from django.db import migrations

INSTRUCTION = """\
You are a helpful assistant. Answer in the language in which you are asked, clearly and without padding, in Markdown \
where it helps.

Use your tools rather than guess: look up the time, the state of the server, and what was said in earlier \
conversations. Say so when you do not know something or could not do it.

Answer a plain question at once. When you were given a task of several steps, do them one after the other and call \
finish_task with the result when nothing is left to do. Call ask_user when only the person can decide or know.\
"""
TOOLS = [
    "sys_monitor",
    "current_time",
    "search_history",
    "read_session",
    "edit_notebook",
    "compress_chat_history",
    "finish_task",
    "ask_user",
]


def create_default_agent(apps, schema_editor):
    agents = apps.get_model("relay", "Agent").objects.using(schema_editor.connection.alias)
    if not agents.exists():
        agents.create(name="assistant", label="Assistant", instruction=INSTRUCTION, tools=TOOLS, is_default=True)


class Migration(migrations.Migration):
    dependencies = [("relay", "0002_spending")]

    operations = [migrations.RunPython(create_default_agent, migrations.RunPython.noop)]
