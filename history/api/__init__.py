"""The REST API at /api/history/: the history for programs. docs/rest.md is its reference.

    urls → sessions, calls, search, transfer → parameters, serializers
           (each view an `ApiView`: authentication, scopes, throttling, one form of errors)

The OpenAPI schema is made from the parameters and the serializers, so it cannot differ from them. Views connect these
with the services of the history; `history.access.permissions` decides on permissions.
"""
