from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RelayConfig(AppConfig):
    name = "relay"
    verbose_name = _("Agents and runs")

    def ready(self) -> None:
        from django.contrib.auth.signals import user_logged_out

        from history.formats.jsonl import register_section
        from history.sessions import actions
        from relay import privacy
        from relay.agents.files import SECTION
        from relay.live import session_changes, sign_outs

        register_section(SECTION)
        privacy.register()
        actions.session_changed.connect(session_changes.on_session_changed)
        user_logged_out.connect(sign_outs.on_sign_out)
