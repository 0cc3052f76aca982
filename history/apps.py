from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class HistoryConfig(AppConfig):
    name = "history"
    verbose_name = _("History")

    def ready(self) -> None:
        from django.db.backends.signals import connection_created

        from history import redaction  # noqa: F401 - registers its system checks
        from history.db.parameters import watch_connection

        connection_created.connect(watch_connection, dispatch_uid="history.db.parameters")
