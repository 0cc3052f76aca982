"""MCP servers as the staff has configured them, and the tools that agents get of them.

Models see the tools of the last `refresh_tool_list`; later changes wait for the next one.
"""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from history.entries import JsonObject, Media
from history.record import recorder
from history.text.media_types import media_type_of
from relay.chat.attachments import most_bytes
from relay.models import McpServer
from relay.runtime.async_db import in_database
from relay.tools.base import Output, Tool, ToolContext, ToolError
from relay.tools.mcp import connections
from relay.tools.mcp.config import McpFailure, McpSettings, unseal
from relay.tools.mcp.shaping import describe_tools, pictures_in, result_text

SEPARATOR = "__"
SLACK = 5.0


def settings_of(row: McpServer) -> McpSettings:
    environment, headers = unseal(row.environment), unseal(row.headers)
    if environment is None or headers is None:
        raise McpFailure(f"the secrets of {row.name} were encrypted with another SECRET_KEY: enter them again")
    is_program = row.transport == McpServer.Transport.STDIO
    return McpSettings(
        name=row.name,
        command=row.command if is_program else "",
        arguments=tuple(map(str, row.arguments)) if is_program else (),
        environment=environment if is_program else {},
        url="" if is_program else row.url,
        headers={} if is_program else headers,
        seconds=float(row.seconds),
    )


def refresh_tool_list(row: McpServer) -> McpServer:
    try:
        row.tools, left_out = describe_tools(row.name, connections.list_tools(settings_of(row)))
        row.problem = f"left out (too many or too large): {', '.join(left_out)}" if left_out else ""
    except (McpFailure, TimeoutError) as error:
        row.problem = str(error) or "it took too long"
    row.looked_at = timezone.now()
    row.save(update_fields=["tools", "problem", "looked_at"])
    return row


def tools_named(names: Sequence[str]) -> list[Tool]:
    """Tools of enabled servers only."""
    servers = {name.partition(SEPARATOR)[0] for name in names if SEPARATOR in name}
    if not servers:
        return []
    return [tool for tool in _tools(McpServer.objects.filter(name__in=servers)) if tool.name in names]


def all_tools() -> list[Tool]:
    return _tools(McpServer.objects.all())


def _tools(rows: QuerySet[McpServer]) -> list[Tool]:
    enabled = [row for row in rows.filter(is_enabled=True) if not row.is_forbidden]
    return [_tool(row, document) for row in enabled for document in row.tools]


def _tool(row: McpServer, document: JsonObject) -> Tool:
    pk, original = row.pk, str(document["tool"])

    async def run(context: ToolContext, /, **arguments: Any) -> Output:
        return await _call(pk, original, arguments)

    about = str(document["description"])
    return Tool(
        name=str(document["name"]),
        description=about,
        parameters=document["parameters"],
        run=run,
        timeout=connections.SECONDS_TO_CONNECT + row.seconds + SLACK,
        output_chars=settings.PARLEY_MCP_RESULT_CHARS,
        summary=about.partition("\n")[0][:100],
    )


async def _call(pk: int, tool: str, arguments: JsonObject) -> Output:
    try:
        server = await in_database(_settings, pk)
        result = await connections.call(server, tool, arguments)
    except McpFailure as error:
        raise ToolError(f"The call failed: {error}.") from None
    pictures = {} if result.is_error else await in_database(_store_pictures, result.content)
    names = {place: picture.name for place, picture in pictures.items()}
    text = result_text(server.name, result.content, result.structured_content, names=names)
    if result.is_error:
        raise ToolError(text[: settings.PARLEY_MCP_RESULT_CHARS])
    return Output(text, tuple(pictures.values()))


def _store_pictures(content: Sequence[Any]) -> dict[int, Media]:
    found = pictures_in(content, most=settings.PARLEY_ATTACHMENTS_PER_MESSAGE, most_bytes=most_bytes())
    stored = {}
    for number, (place, data) in enumerate(found.items(), 1):
        media_type = media_type_of(data) or ""
        sha256 = recorder.store_blob(data, media_type=media_type)
        name = f"picture-{number}.{media_type.partition('/')[2]}"
        stored[place] = Media(media_type=media_type, sha256=sha256, size=len(data), name=name)
    return stored


def _settings(pk: int) -> McpSettings:
    row = McpServer.objects.filter(pk=pk, is_enabled=True).first()
    if row is None:
        raise McpFailure("the MCP server of this tool is disabled")
    return settings_of(row)
