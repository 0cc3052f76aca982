from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccountsConfig(AppConfig):
    name = "project.accounts"
    label = "accounts"
    verbose_name = _("people")

    def ready(self) -> None:
        from project.accounts import personal_data

        personal_data.register()
