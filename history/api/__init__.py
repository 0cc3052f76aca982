"""The REST API: the record for programs, at /api/history/. docs/rest.md tells it from the outside.

What may be asked is in `asked`, what is answered in `answers`: serializers, from which the OpenAPI schema is made, so
that neither can say something that the other does not. Views only bring the two together with the services of the
record; who may do what is decided by `history.access.permissions`, never here.

    urls → sessions, messages, tool_calls, exchanges, searching → asked, answers
           (each an `ApiView`: authentication, scopes, throttling, one form of errors)
"""
