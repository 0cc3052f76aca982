import pytest

# They assert for the tests that use them, and should say as much when they fail.
pytest.register_assert_rewrite("tests.history.conformance.state_machine", "tests.history.conformance.steps")
