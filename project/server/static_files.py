"""Static files: under hashed names once they were collected, under plain ones before, and fit for an event loop."""

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class HashedWhenCollected(ManifestStaticFilesStorage):
    """`serve` collects what has changed. A server started by hand in a fresh clone still shows its pages."""

    manifest_strict = False

    def stored_name(self, name: str) -> str:
        return super().stored_name(name) if self.hashed_files else name


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """Sends a file in one piece. WhiteNoise streams it by a sync iterator, at which Django warns under ASGI."""

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
