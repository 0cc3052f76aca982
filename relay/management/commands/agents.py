"""`manage.py agents list | export | import`: agents as TOML files.

Exit codes: 0 done, 1 not found, refused or not an agent file, 2 wrong usage.
"""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from history.entries import JsonDict
from history.management.output import print_json, print_table
from relay.agents import files
from relay.models import Agent


class Command(BaseCommand):
    help = "List agents, export one to a TOML file, import one from a TOML file."

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="list | export | import")
        shown = actions.add_parser("list", help="List the agents.")
        exported = actions.add_parser("export", help="Export an agent as TOML to stdout or to a file.")
        exported.add_argument("name", help="name of the agent")
        exported.add_argument("--output", type=Path, metavar="FILE", help="file to write; default: stdout")
        imported = actions.add_parser("import", help="Create an agent from a TOML file.")
        imported.add_argument("file", help="path of a TOML file; - reads standard input")
        imported.add_argument("--replace", action="store_true", help="update the agent with this name if it exists")
        for parser in (shown, exported, imported):
            parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        actions = {"list": self.list_agents, "export": self.export_agent, "import": self.import_agent}
        actions[options["action"]](options)

    def list_agents(self, options: JsonDict) -> None:
        agents = [_describe(agent) for agent in Agent.objects.all()]
        if options["json"]:
            print_json(self.stdout, agents)
            return
        columns = (_("name"), _("shown as"), _("model"), _("tools"), _("default"))
        rows = [
            [row["name"], row["label"], row["model"], ", ".join(row["tools"]), _("yes") if row["is_default"] else ""]
            for row in agents
        ]
        print_table(self.stdout, columns, rows)

    def export_agent(self, options: JsonDict) -> None:
        agent = Agent.objects.filter(name=options["name"]).first()
        if agent is None:
            raise CommandError(_("There is no agent %(name)s.") % {"name": options["name"]})
        text = files.agent_to_toml(agent)
        if options["json"]:
            print_json(self.stdout, {"name": agent.name, "toml": text})
        elif options["output"]:
            _write(options["output"], text)
        else:
            self.stdout.write(text, ending="")

    def import_agent(self, options: JsonDict) -> None:
        try:
            agent, remarks = files.parse_agent(_read(options["file"]))
            files.save_agent(agent, replacing=options["replace"])
        except files.InvalidAgentFile as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            print_json(self.stdout, {**_describe(agent), "remarks": remarks})
            return
        for remark in remarks:
            self.stderr.write(remark)
        self.stdout.write(_("Agent %(name)s imported.") % {"name": agent.name})


def _describe(agent: Agent) -> JsonDict:
    return {name: getattr(agent, name) for name in ("name", "label", "model", "tools", "agents", "is_default")}


def _read(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise CommandError(_("%(file)s cannot be read: %(why)s") % {"file": name, "why": error.strerror}) from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise CommandError(_("%(file)s cannot be written: %(why)s") % {"file": path, "why": error.strerror}) from error
