"""Where static files are found: under hashed names once they were collected, under plain ones before."""

from django.contrib.staticfiles.storage import ManifestStaticFilesStorage


class HashedWhenCollected(ManifestStaticFilesStorage):
    """`serve` collects on every start. A server started by hand in a fresh clone still shows its pages."""

    manifest_strict = False

    def stored_name(self, name: str) -> str:
        return super().stored_name(name) if self.hashed_files else name
