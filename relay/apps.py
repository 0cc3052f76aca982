from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RelayConfig(AppConfig):
    name = "relay"
    verbose_name = _("Agents and runs")

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from history import changes
        from history.formats.jsonl import register_section
        from relay import hearing, persons, signed_in
        from relay.agents_in_exports import SECTION

        register_section(SECTION)
        persons.register()
        changes.listen(hearing.session_changed)
        user_logged_out.connect(signed_in.note_sign_out)
