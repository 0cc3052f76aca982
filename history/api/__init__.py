"""The REST API at /api/history/: the history for programs. docs/rest.md is its reference.

urls → views, transfer → parameters, serializers
       (each view an `ApiView`: authentication, scopes, throttling, one form of errors)
"""
