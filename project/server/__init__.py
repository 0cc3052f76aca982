"""Limits in front of the application, the same under Daphne, Uvicorn and Granian."""
