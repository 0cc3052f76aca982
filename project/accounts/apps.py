from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "project.accounts"
    label = "accounts"

    def ready(self) -> None:
        from project.accounts import erasing

        erasing.register()
