import pytest

# They assert for the tests that use them, and should say as much when they fail.
pytest.register_assert_rewrite("tests.history.side_by_side", "tests.history.steps")
