"""Amounts of use (requests, tokens, cost), the days in which they are counted, and prices of models by dated tables.

Days are those of PARLEY_TIME_ZONE, so that no user starts a new day by moving to another zone. The operator's file
(PARLEY_PRICES) comes first, then `prices_own.toml`, written by hand, then `prices.toml`, which `make prices` generates.
Unknown models have a ceiling under a budget in money, because a budget that counts 0 does not hold.

`input_tokens` includes cache reads and writes, and each token is paid for once.
"""

import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime, time as clock, timedelta
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from django.conf import settings

from history.dialects.json_access import as_count, obj
from history.entries import Usage

OWN, SHIPPED = Path(__file__).with_name("prices_own.toml"), Path(__file__).with_name("prices.toml")
MILLION = Decimal(1_000_000)
SMALLEST = Decimal("0.000001")
DOLLARS = "dollars per million tokens, like 2.50"
EXAMPLES = {
    "model": "a name in quotes",
    "provider": "a name in quotes",
    "since": "a day without a time, like 2026-09-01",
    "above": "a whole number of tokens, like 200000",
}


class Use(NamedTuple):
    """A tuple, because it is added up several times in every call."""

    requests: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def __add__(self, other: "Use") -> "Use":  # type: ignore[override]
        return Use(self.requests + other.requests, self.tokens + other.tokens, self.cost + other.cost)

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens or self.cost)


NO_USE = Use()


def this_minute() -> int:
    return int(time.time()) // 60


def today() -> date:
    return day_of(this_minute())


def day_of(minute: int) -> date:
    return _day_of(minute, settings.TIME_ZONE)


@lru_cache(maxsize=4)
def _day_of(minute: int, zone: str) -> date:
    return datetime.fromtimestamp(minute * 60, ZoneInfo(zone)).date()


def start_of_tomorrow() -> datetime:
    return _start_of(today() + timedelta(days=1))


def start_of_next_month() -> datetime:
    return _start_of((today().replace(day=1) + timedelta(days=32)).replace(day=1))


def _start_of(day: date) -> datetime:
    return datetime.combine(day, clock.min, tzinfo=ZoneInfo(settings.TIME_ZONE))


class WrongPrices(ValueError):
    """One sentence: what is wrong where, and what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """In dollars for a million tokens, from the day `since` on, if the input has more tokens than `above`."""

    model: str
    provider: str = ""
    since: date = date.min
    above: int = 0
    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None

    def fits(self, *, provider: str, model: str, day: date) -> bool:
        name = model.removeprefix("models/")
        is_it = name.startswith(self.model[:-1]) if self.model.endswith("*") else name == self.model
        return is_it and self.provider in ("", provider) and self.since <= day


def cost_of(
    usage: Usage, *, provider: str, model: str, on: date | None = None, has_money_budget: bool = False
) -> Decimal:
    """In dollars, to the millionth. An unknown model costs 0, or the ceiling where a budget in money has to hold."""
    price = price_of(provider=provider, model=model, tokens=usage.input_tokens, on=on)
    if price is None:
        if not has_money_budget:
            return Decimal(0)
        unknown_input, unknown_output = settings.PARLEY_UNKNOWN_INPUT_PRICE, settings.PARLEY_UNKNOWN_OUTPUT_PRICE
        price = Price(model="*", input=unknown_input, output=unknown_output)
    hour = min(
        as_count(obj(usage.raw.get("cache_creation")).get("ephemeral_1h_input_tokens")), usage.cache_write_tokens
    )
    fresh = max(usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens, 0)
    paid = (
        fresh * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * _or(price.cache_read, price.input)
        + (usage.cache_write_tokens - hour) * _or(price.cache_write, price.input)
        + hour * _or(price.cache_write_1h, _or(price.cache_write, price.input))
    )
    return (paid / MILLION).quantize(SMALLEST)


def price_of(*, provider: str, model: str, tokens: int = 0, on: date | None = None) -> Price | None:
    """The operator's before ours; of one file by `_rank`, and of that the highest step that holds."""
    steps = _steps(settings.PARLEY_PRICES, provider, model, on or date.today())
    return next((price for price in steps if tokens > price.above or not price.above), None) if steps else None


@lru_cache(maxsize=2_000)
def _steps(written: tuple[Price, ...], provider: str, model: str, day: date) -> tuple[Price, ...]:
    for table in (written, *shipped()):
        if fitting := [price for price in table if price.fits(provider=provider, model=model, day=day)]:
            best = max(map(_rank, fitting))
            return tuple(sorted((p for p in fitting if _rank(p) == best), key=lambda price: -price.above))
    return ()


def _rank(price: Price) -> tuple[int, bool, bool, date]:
    """The longest name is best, then a whole name, the provider's own price, the latest."""
    is_whole = not price.model.endswith("*")
    return len(price.model.rstrip("*")), is_whole, bool(price.provider), price.since


@lru_cache(maxsize=1)
def shipped() -> tuple[tuple[Price, ...], ...]:
    return read_prices(OWN), read_prices(SHIPPED)


def read_prices(path: Path) -> tuple[Price, ...]:
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise WrongPrices(f"it cannot be read ({error.strerror}); write the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongPrices(f"it is not valid TOML ({error}); write it as docs/relay.md shows") from None
    for key in written:
        if key != "prices":
            raise WrongPrices(f"it has the key “{key}” at the top level; write only [[prices]]")
    tables = written.get("prices", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise WrongPrices("“prices” is not a list of tables; write [[prices]] before each")
    return tuple(_price(table, place) for place, table in enumerate(tables, 1))


def _price(table: Mapping[str, Any], place: int) -> Price:
    known = {field.name for field in fields(Price)}
    for key, value in table.items():
        if key not in known:
            raise WrongPrices(f"price {place} has the key “{key}”, which does not exist; write some of {sorted(known)}")
        if not _is_right(key, value):
            raise WrongPrices(f"price {place} has {key} = {value}; write {EXAMPLES.get(key, DOLLARS)}")
    if not table.get("model") or "*" in table["model"][:-1]:
        raise WrongPrices(f'price {place} has no valid model; write model = "name", or model = "beginning*"')
    amounts: dict[str, Any] = {key: Decimal(table[key]) for key in table.keys() - EXAMPLES.keys()}
    return Price(**{**table, **amounts})


def _is_right(key: str, value: object) -> bool:
    if key in ("model", "provider"):
        return isinstance(value, str)
    if key == "since":  # Python takes a moment for a day, and then cannot compare the two
        return isinstance(value, date) and not isinstance(value, datetime)
    if isinstance(value, bool) or not isinstance(value, int if key == "above" else int | Decimal):
        return False
    return Decimal(value).is_finite() and value >= 0


def _or(price: Decimal | None, otherwise: Decimal) -> Decimal:
    return otherwise if price is None else price
