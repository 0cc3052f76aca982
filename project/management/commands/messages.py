"""`manage.py messages`: texts in code and templates, and their translations, kept in step."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.translations import extract

CATALOGUE = Path("locale", "zh_Hans", "LC_MESSAGES", "django.po")


class Command(BaseCommand):
    help = "Collect the texts for translation and compile the translations (for those who change Parley)."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail if something is out of step")

    def handle(self, *args: Any, **options: Any) -> None:
        import polib

        path = Path(settings.BASE_DIR, CATALOGUE)
        texts = extract.texts_in(Path(settings.BASE_DIR))
        catalogue = polib.pofile(str(path), wrapwidth=120)
        if not options["check"]:
            catalogue = extract.brought_up_to_date(catalogue, texts)
            catalogue.save(str(path))
            catalogue.save_as_mofile(str(path.with_suffix(".mo")))
        missing = extract.missing_from(catalogue, texts)
        if missing:
            listed = "\n".join(f"  {text.singular!r} ({', '.join(sorted(text.places))})" for text in missing)
            raise CommandError(f"{len(missing)} texts have no translation. Write them into {CATALOGUE}:\n{listed}")
        if path.with_suffix(".mo").read_bytes() != catalogue.to_binary():
            raise CommandError(f"{CATALOGUE.with_suffix('.mo')} is out of step. Run: make messages")
        self.stdout.write(f"{len(texts)} texts, all translated.")
