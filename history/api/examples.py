"""Examples for curl and Python of each REST operation, in the schema and in docs/rest.md.

Tests run all of them. `$PARLEY`, `$KEY`, `$SESSION` and the like are variables that the reader sets.
"""

from __future__ import annotations

CURL = {
    "list_sessions": """curl "$PARLEY/api/history/sessions?source=relay&from=2026-11-01&limit=20" \\
  -H "Authorization: Bearer $KEY\"""",
    "read_session": """curl "$PARLEY/api/history/sessions/$SESSION" -H "Authorization: Bearer $KEY\"""",
    "change_session": """curl -X PATCH "$PARLEY/api/history/sessions/$SESSION" \\
  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" \\
  -d '{"title": "The loom", "pinned": true}'""",
    "delete_session": """curl -X DELETE "$PARLEY/api/history/sessions/$SESSION" -H "Authorization: Bearer $KEY\"""",
    "read_messages": """curl "$PARLEY/api/history/sessions/$SESSION/messages?limit=50" \\
  -H "Authorization: Bearer $KEY\"""",
    "read_message": """curl "$PARLEY/api/history/sessions/$SESSION/messages/2" -H "Authorization: Bearer $KEY\"""",
    "summarise": """curl -X POST "$PARLEY/api/history/sessions/$SESSION/summaries" \\
  -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d '{}'""",
    "take_summary_back": """curl -X DELETE "$PARLEY/api/history/sessions/$SESSION/summaries/$SUMMARY" \\
  -H "Authorization: Bearer $KEY\"""",
    "list_tool_calls": """curl "$PARLEY/api/history/tool-calls?tool=sys_monitor&status=failed" \\
  -H "Authorization: Bearer $KEY\"""",
    "read_exchange": """curl "$PARLEY/api/history/exchanges/$EXCHANGE" -H "Authorization: Bearer $KEY\"""",
    "search": """curl -G "$PARLEY/api/history/search" --data-urlencode 'q="punched cards" -loom' \\
  -H "Authorization: Bearer $KEY\"""",
    "export": """curl "$PARLEY/api/history/export?format=jsonl&mine=true&gzip=true" \\
  -H "Authorization: Bearer $KEY" -o history.jsonl.gz""",
    "import": """curl -X POST "$PARLEY/api/history/import?name=conversations.zip" \\
  -H "Authorization: Bearer $KEY" -H "Content-Type: application/octet-stream" --data-binary @$FILE""",
    "read_import": """curl "$PARLEY/api/history/import/$IMPORT" -H "Authorization: Bearer $KEY\"""",
}

PYTHON = {
    "list_sessions": """
address = f"{PARLEY}/api/history/sessions?source=relay&from=2026-11-01"
while address:
    page = api.get(address).json()
    for session in page["results"]:
        print(session["id"], session["title"])
    address = page["next"]
""",
    "read_session": """
session = api.get(f"{PARLEY}/api/history/sessions/{SESSION}").json()
print(session["title"], session["message_count"])
""",
    "change_session": """
session = api.get(f"{PARLEY}/api/history/sessions/{SESSION}")
api.patch(
    f"{PARLEY}/api/history/sessions/{SESSION}",
    json={"title": "The loom", "pinned": True},
    headers={"If-Match": session.headers["ETag"]},
)
""",
    "delete_session": """
api.delete(f"{PARLEY}/api/history/sessions/{SESSION}")
""",
    "read_messages": """
address = f"{PARLEY}/api/history/sessions/{SESSION}/messages?limit=50"
while address:
    page = api.get(address).json()
    for message in reversed(page["results"]):
        print(message["seq"], message["role"], message["content"])
    address = page["previous"]
""",
    "read_message": """
message = api.get(f"{PARLEY}/api/history/sessions/{SESSION}/messages/2").json()
print(message["entry"]["parts"])
""",
    "summarise": """
done = api.post(f"{PARLEY}/api/history/sessions/{SESSION}/summaries", json={}).json()
print(done["summaries"])
""",
    "take_summary_back": """
api.delete(f"{PARLEY}/api/history/sessions/{SESSION}/summaries/{SUMMARY}")
""",
    "list_tool_calls": """
asked = {"tool": "sys_monitor", "status": "failed"}
page = api.get(f"{PARLEY}/api/history/tool-calls", params=asked).json()
for call in page["results"]:
    print(call["created_at"], call["arguments"], call["error"])
""",
    "read_exchange": """
exchange = api.get(f"{PARLEY}/api/history/exchanges/{EXCHANGE}").json()
print(exchange["end_reason"], exchange["duration"], exchange["cost"])
""",
    "search": """
found = api.get(f"{PARLEY}/api/history/search", params={"q": '"punched cards" -loom', "count": True}).json()
for hit in found["results"]:
    print(hit["title"], "".join(piece["text"] for piece in hit["snippet"]["pieces"]))
""",
    "export": """
with api.get(f"{PARLEY}/api/history/export", params={"format": "jsonl", "since": "start"}, stream=True) as answer:
    for line in answer.iter_lines():
        if b'"type":"session"' in line or b'"type":"end"' in line:
            print(line.decode())
""",
    "import": """
with open(FILE, "rb") as file:
    job = api.post(f"{PARLEY}/api/history/import", params={"name": "conversations.zip"}, data=file).json()
print(job["id"], job["state"])
""",
    "read_import": """
while (job := api.get(f"{PARLEY}/api/history/import/{IMPORT}").json())["state"] in ("waiting", "running"):
    time.sleep(1)
for item in job["items"]:
    print(item["outcome"], item["title"], item["why"])
""",
}

SETUP = """
import os
import time

import requests

PARLEY = os.environ["PARLEY"]
api = requests.Session()
api.headers["Authorization"] = f"Bearer {os.environ['KEY']}"
api.hooks["response"] = lambda response, **_: response.raise_for_status()
"""


def samples_of(name: str) -> list[dict[str, str]]:
    """As `x-codeSamples`, which most readers of schemas show."""
    python = f"{SETUP.strip()}\n\n{PYTHON[name].strip()}"
    return [
        {"lang": "Shell", "label": "curl", "source": CURL[name]},
        {"lang": "Python", "label": "Python", "source": python},
    ]
