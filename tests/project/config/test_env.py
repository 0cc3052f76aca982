"""Readers of the environment: they give typed values, and name what is wrong."""

from decimal import Decimal
from pathlib import Path

import pytest

from project.config.env import EXIT_CODE, Environment, local_url


def read(**variables: str) -> Environment:
    return Environment(variables)


@pytest.mark.parametrize(
    ("written", "meant"), [("true", True), ("Yes", True), ("1", True), ("off", False), ("0", False)]
)
def test_a_flag_is_read_in_the_words_people_use(written: str, meant: bool) -> None:
    assert read(DEBUG=written).flag("DEBUG", not meant) is meant


def test_an_empty_variable_counts_as_not_set() -> None:
    env = read(PORT="", DEBUG="  ")
    assert env.whole_number("PORT", 8000) == 8000
    assert env.flag("DEBUG", True) is True
    assert env.problems == []


@pytest.mark.parametrize("written", ["eight", "-1", "1.5", "70000", "４２"])
def test_a_number_out_of_bounds_is_refused_by_name_and_value(written: str) -> None:
    env = read(PORT=written)
    env.whole_number("PORT", 8000, least=1, most=65535)
    assert env.problems == [f'PORT is "{written}": write a whole number from 1 to 65535.']


@pytest.mark.parametrize(("written", "meant"), [("", "1.5"), ("0", "0"), ("2", "2"), ("0.50", "0.50")])
def test_an_amount_may_have_parts(written: str, meant: str) -> None:
    assert read(COST=written).amount("COST", Decimal("1.5")) == Decimal(meant)


@pytest.mark.parametrize("written", ["-1", "1,5", "NaN", "1e9", "0.00001", ".5", "１"])
def test_an_amount_that_is_none_is_refused(written: str) -> None:
    env = read(COST=written)
    env.amount("COST", Decimal(0))
    assert env.problems == [f'COST is "{written}": write a number like 2 or 0.50.']


def test_a_list_is_separated_by_commas() -> None:
    assert read(ALLOWED_HOSTS="a.example, b.example,").words("ALLOWED_HOSTS") == ["a.example", "b.example"]


def test_a_path_is_found_from_the_project_and_from_home(tmp_path: Path) -> None:
    env = read(A="here", B="/there", C="~/home")
    assert env.path("A", tmp_path, base=tmp_path) == tmp_path / "here"
    assert env.path("B", tmp_path, base=tmp_path) == Path("/there")
    assert env.path("C", tmp_path, base=tmp_path) == Path.home() / "home"


@pytest.mark.parametrize("written", ["nonsense", "http://host", "postgres://host:notaport/x", "redis://[half"])
def test_an_address_of_the_wrong_kind_is_refused_with_an_example(written: str) -> None:
    env = read(REDIS_URL=written)
    env.url("REDIS_URL", schemes=("redis", "postgres"), example="redis://127.0.0.1/0")
    assert env.problems == [f'REDIS_URL is "{written}": write a URL like redis://127.0.0.1/0.']


def test_a_refusal_never_shows_a_secret() -> None:
    env = read(SECRET_KEY="hunter2", DATABASE_URL="mysql://me:hunter2@host/x")
    env.refuse("SECRET_KEY", "write more")
    env.url("DATABASE_URL", schemes=("postgres",), example="postgres://host/x")
    assert "hunter2" not in " ".join(env.problems)
    assert 'DATABASE_URL is "mysql://…@host/x"' in env.problems[1]


def test_hooks_are_dotted_paths() -> None:
    assert read(H="a.b, c.d.e").dotted_paths("H") == ["a.b", "c.d.e"]
    wrong = read(H="not a path")
    assert wrong.dotted_paths("H") == []
    assert "package.module.function" in wrong.problems[0]


def test_a_choice_names_the_others() -> None:
    env = read(LEVEL="loud")
    assert env.choice("LEVEL", "INFO", among=("INFO", "DEBUG")) == "INFO"
    assert env.problems == ['LEVEL is "loud": write one of INFO, DEBUG.']


def test_a_time_zone_that_does_not_exist_is_refused() -> None:
    env = read(ZONE="Mars/Olympus")
    assert env.time_zone("ZONE", "UTC") == "UTC"
    assert "Europe/Berlin" in env.problems[0]


def test_everything_wrong_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    env = read(A="x", B="y")
    env.flag("A", False)
    env.whole_number("B", 1)
    with pytest.raises(SystemExit) as ended:
        env.stop_if_wrong()
    assert ended.value.code == EXIT_CODE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "A is" in said
    assert "B is" in said


def test_the_process_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("PARLEY_ONE=file\nPARLEY_TWO=file\n")
    monkeypatch.setenv("PARLEY_ONE", "process")
    env = Environment.of_process(tmp_path / ".env")
    assert (env.text("PARLEY_ONE"), env.text("PARLEY_TWO")) == ("process", "file")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("192.0.2.7", "http://192.0.2.7:8000"),
    ],
)
def test_links_lead_to_where_the_server_listens(host: str, address: str) -> None:
    assert local_url(host, 8000) == address
