"""A seal over what a session began with. Sessions that are there are sealed as they are found."""

import hmac
import json
from hashlib import sha256

from django.conf import settings
from django.db import migrations

import history.fields

BATCH = 500


def seal_sessions(apps, schema_editor):
    session_model = apps.get_model("history", "Session")
    rows, last = session_model.objects.order_by("pk"), None
    columns = ("pk", "owner_id", "api_key_id", "source", "title")
    while page := list((rows if last is None else rows.filter(pk__gt=last)).only(*columns)[:BATCH]):
        for session in page:
            session.given_title = title_mark(session)
            facts = (session.pk, session.owner_id, session.api_key_id, session.source, session.given_title.hex())
            written = json.dumps([None if fact is None else str(fact) for fact in facts])
            session.begin_seal = sha256(b"begin" + written.encode()).digest()
        session_model.objects.bulk_update(page, ["given_title", "begin_seal"])
        last = page[-1].pk


def title_mark(session):
    if not session.title:
        return b""
    said = b"title|" + session.pk.bytes + session.title.encode("utf-8", "surrogatepass")
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, said, "sha256")[:16]


class Migration(migrations.Migration):
    dependencies = [
        ("history", "0016_guarded_tables"),
    ]

    operations = [
        migrations.AddField(
            model_name="session", name="given_title", field=history.fields.HashField(default=bytes, max_length=16)
        ),
        migrations.AddField(
            model_name="session", name="begin_seal", field=history.fields.HashField(default=bytes, max_length=32)
        ),
        migrations.RunPython(seal_sessions, migrations.RunPython.noop),
    ]
