"""Static files (collected when they changed, under hashed names) and compression of responses."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage, staticfiles_storage
from django.core.files.base import ContentFile
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from whitenoise.compress import Compressor
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from project.server.bundles import BUNDLES, FOLDER, join


class HashedWhenCollected(ManifestStaticFilesStorage):
    """Plain names until files are collected, so that a server in a fresh clone shows its pages."""

    manifest_strict = False

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[tuple[Any, ...]]:
        """Add the bundles, and compress them once instead of with each response."""
        if not dry_run:
            paths |= {name: (self, name) for name in self._write_bundles(paths)}
        for path, stored, outcome in super().post_process(paths, dry_run, **options):
            if path.startswith(FOLDER) and stored:
                Compressor(quiet=True, use_brotli=False).compress(self.path(stored))
            yield path, stored, outcome

    def _write_bundles(self, paths: dict[str, Any]) -> Iterator[str]:
        def read(path: str) -> str:
            storage, name = paths[path]
            with storage.open(name) as file:
                return str(file.read().decode())

        for name, files in BUNDLES.items():
            if all(path in paths for path in files):
                self.delete(FOLDER + name)
                yield self.save(FOLDER + name, ContentFile(join(name, read)))

    def stored_name(self, name: str) -> str:
        return super().stored_name(name) if self.hashed_files else name


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Sends a file in one piece. Django warns of WhiteNoise's sync iterator under ASGI."""

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response


def collect_when_changed() -> bool:
    """Collect static files unless they are as they were at the last time. Returns whether files were collected."""
    stamp, sources = Path(settings.PARLEY_DATA_DIR) / "static.stamp", _state_of_sources()
    if stamp.exists() and stamp.read_text() == sources and staticfiles_storage.exists("staticfiles.json"):
        return False
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(sources)
    return True


def _state_of_sources() -> str:
    """A hash of the bundles, and of the paths, sizes and times of all files that would be collected."""
    found = sorted((path, storage.path(path)) for finder in get_finders() for path, storage in finder.list([]))
    lines = [f"{path} {place} {Path(place).stat().st_size} {Path(place).stat().st_mtime_ns}" for path, place in found]
    return hashlib.sha256("\n".join([str(BUNDLES), *lines]).encode()).hexdigest()


TEXTS = ("text/", "application/json", "application/javascript", "image/svg+xml")


class CompressionMiddleware(GZipMiddleware):
    """Django's middleware adds random bytes, so that the length of a page reveals no secrets."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        is_text = response.get("Content-Type", "").startswith(TEXTS)
        return super().process_response(request, response) if is_text and response.status_code != 206 else response
