"""The first agent keeps a plan and a notebook, unless somebody has chosen its tools."""

from django.db import migrations

ADDED = ["edit_notebook", "update_plan", "compress_chat_history"]
# What it began with, from the first release on.
BEGAN_WITH = [
    {"sys_monitor", "current_time", "search_history", "read_session", "finish_task", "ask_user", *later}
    for later in ([], ADDED[:1], [ADDED[0], ADDED[2]])
]


def add_tools(apps, schema_editor):
    agents = apps.get_model("relay", "Agent").objects.using(schema_editor.connection.alias)
    agent = agents.filter(name="assistant").first()
    if agent is None or set(agent.tools) not in BEGAN_WITH:
        return
    last = [name for name in agent.tools if name in ("finish_task", "ask_user")]
    first = [name for name in agent.tools if name not in (*ADDED, *last)]
    agents.filter(pk=agent.pk).update(tools=[*first, *ADDED, *last])


class Migration(migrations.Migration):
    dependencies = [("relay", "0010_summarising")]

    operations = [migrations.RunPython(add_tools, migrations.RunPython.noop)]
