"""What every test can ask for."""

import pytest


@pytest.fixture
def ada(django_user_model):
    return django_user_model.objects.create_user("ada", password="analytical engine")


@pytest.fixture
def bob(django_user_model):
    return django_user_model.objects.create_user("bob", password="a stranger")
