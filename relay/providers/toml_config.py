"""Parser of the PARLEY_PROVIDERS file: TOML with providers, models and routes.

Every key is checked by name and type. Anything else raises `WrongProviders`.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast, get_type_hints

from history.dialects import DIALECTS, Switches
from relay.providers import vendors
from relay.providers.base import Model, Rule, Target
from relay.providers.endpoints import (
    CREDENTIALS,
    FORWARDED_HEADERS,
    KEY_HEADERS,
    Credentials,
    Endpoint,
    Timeouts,
    is_address,
    is_key,
    is_safe_for_logins,
)
from relay.providers.vendors import EXAMPLE_PATTERN, Vendor

Variables = Callable[[str], str]
Table = Mapping[str, Any]

Types = Mapping[str, type | tuple[type, ...]]
NUMBER = (int, float)
PROVIDER_KEYS: Types = {
    **dict.fromkeys(
        ("name", "label", "dialect", "base_url", "api_key", "api_key_env", "key_header", "credentials"), str
    ),
    "headers": dict,
    "azure_api_version": str,
    "models": list,
    "list_models": bool,
    "switches": dict,
    "connect_seconds": NUMBER,
    "idle_seconds": NUMBER,
    "attempts": int,
    "also_speaks": list,
    "paths": list,
}
ROUTE_KEYS: Types = {"model": str, "to": list}
TARGET_KEYS: Types = {"provider": str, "model": str, "weight": NUMBER}
MODEL_KEYS: Types = {
    **dict.fromkeys(("name", "label"), str),
    **dict.fromkeys(("window", "context_tokens"), int),
    **dict.fromkeys(("takes_tools", "takes_images", "can_summarise"), bool),
    "switches": dict,
}
WORDS: dict[type | tuple[type, ...], str] = {
    str: "a string in quotes",
    bool: "true or false",
    int: "a whole number",
    NUMBER: "a number",
    dict: "a table like { … }",
    list: "a list like [ … ]",
}
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")  # as they are stored with every answer
PATH = re.compile(r"(?:(?:GET|POST|PUT|PATCH|DELETE) )?/v1(?:beta)?/[\w./:-]*(?:(?<=/)\*)?")
LONGEST_MODEL = 100
NOT_WITH_LOGINS = ("api_key", "api_key_env", "key_header", "azure_api_version", "list_models", "paths")
MOST_SECONDS, MOST_ATTEMPTS = 86_400, 10


class WrongProviders(ValueError):
    """One sentence: what is wrong where, and what to write."""


class ProvidersFile(NamedTuple):
    providers: tuple[Endpoint, ...] = ()
    routes: tuple[Rule, ...] = ()


def read_file(path: Path, *, variables: Variables) -> ProvidersFile:
    """`variables` gives the values that `api_key_env` names."""
    try:
        written = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WrongProviders(f"it cannot be read ({error.strerror}); write the path of a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongProviders(f"it is not valid TOML ({error}); write it as docs/providers.md shows") from None
    return ProvidersFile(read_tables(written, variables=variables), read_routes(written))


@contextmanager
def _within(place: str) -> Iterator[None]:
    try:
        yield
    except WrongProviders as error:
        raise WrongProviders(f"{place} {error}") from None


def _tables(written: Table, name: str) -> list[Table]:
    tables = written.get(name, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise WrongProviders(f"“{name}” is not a list of tables; write [[{name}]] before each")
    return tables


def read_routes(written: Table) -> tuple[Rule, ...]:
    rules = []
    for place, table in enumerate(_tables(written, "routes"), 1):
        with _within(f"route {place}"):
            rules.append(_rule(table))
    return tuple(rules)


def _rule(table: Table) -> Rule:
    _check(table, ROUTE_KEYS)
    if not table.get("model") or not table.get("to"):
        raise WrongProviders(f'has no model or no provider; write model = "{EXAMPLE_PATTERN}" and to = ["provider"]')
    if "*" in table["model"][:-1]:
        raise WrongProviders(
            f'has model = {table["model"]!r}; write a complete name, or a beginning with a star: "{EXAMPLE_PATTERN}"'
        )
    return Rule(model=table["model"], targets=tuple(map(_target, table["to"])))


def _target(written: object) -> Target:
    """A table, or in short `provider` or `provider/model`."""
    if isinstance(written, str):
        provider, _, model = written.partition("/")
        written = {"provider": provider, "model": model}
    if not isinstance(written, dict):
        raise WrongProviders(f'has to = {written!r}; write "provider/model" or {{ provider = "…", weight = 2 }}')
    _check(written, TARGET_KEYS)
    if not NAME.fullmatch(written.get("provider", "")) or not 0 <= written.get("weight", 1) < math.inf:
        raise WrongProviders(f"has to = {written!r}; write the name of a provider, and a weight of 0 or more")
    return Target(**written)


def read_tables(written: Table, *, variables: Variables) -> tuple[Endpoint, ...]:
    for key in written:
        if key not in ("providers", "routes"):
            raise WrongProviders(f"it has the key “{key}” at the top level; write only [[providers]] and [[routes]]")
    found = tuple(_endpoint(table, place, variables) for place, table in enumerate(_tables(written, "providers"), 1))
    for name, count in Counter(endpoint.name for endpoint in found).items():
        if count > 1:
            raise WrongProviders(f"it has the provider “{name}” twice; write each name once")
    return found


def _endpoint(table: Table, place: int, variables: Variables) -> Endpoint:
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise WrongProviders(
            f'provider {place} has no valid name; write name = "…", up to 60 lowercase letters, digits, - and _'
        )
    if name == vendors.DEMO_NAME:
        raise WrongProviders(f"it has a provider called “{name}”, the name of the demo model; write another name")
    where = f"the provider “{name}”"
    with _within(where):
        _check(table, PROVIDER_KEYS)
        start = _start(table, vendors.VENDOR_OF_NAME.get(name), variables)
        if start.takes_login:
            _check_login(table, start)
    models = _models(table, where, known={model.name: model.window for model in start.models})
    with _within(where):
        if start.azure_api_version and not models:
            raise WrongProviders('is at Azure and has no models; write models = ["…"], the names of your deployments')
        return replace(
            start,
            **_key(table, start, variables),
            label=table.get("label", start.label),
            headers=_headers(table),
            # Without a key nothing can be listed: with no models in the file, the provider takes any name.
            models=models if start.takes_login else models or start.models,
            models_are_guessed=not models,
            # Named models are the only ones, unless the file says otherwise.
            lists_models=not start.takes_login and bool(table.get("list_models", not models)),
            switches=_switches(table.get("switches", {}), start.switches),
            timeouts=_timeouts(table),
            also_speaks=_also_speaks(table, start),
            paths=_paths(table),
        )


def _also_speaks(table: Table, start: Endpoint) -> tuple[str, ...]:
    if "also_speaks" not in table:
        return () if start.azure_api_version else vendors.other_dialects(start.dialect, start.base_url)
    for dialect in table["also_speaks"]:
        if dialect not in DIALECTS:
            raise WrongProviders(f"also speaks {dialect!r}; write some of {', '.join(DIALECTS)}")
    return tuple(table["also_speaks"])


def _paths(table: Table) -> tuple[str, ...]:
    for path in table.get("paths", []):
        if not isinstance(path, str) or not PATH.fullmatch(path):
            raise WrongProviders(f'has the path {path!r}; write paths like "/v1/files/*" or "POST /v1/batches"')
    return tuple(table.get("paths", []))


def _start(table: Table, vendor: Vendor | None, variables: Variables) -> Endpoint:
    """Address and dialect, before the details; a known vendor's own where the file has none."""
    base_url = str(table.get("base_url") or (vendor and (variables(vendor.url_variable) or vendor.base_url)) or "")
    dialect = str(table.get("dialect") or (vendor and vendors.default_dialect(vendor, base_url)) or "")
    azure = str(table.get("azure_api_version", ""))
    if not is_address(base_url):
        raise WrongProviders("has no valid base_url; write a URL like http://127.0.0.1:11434/v1")
    if dialect not in DIALECTS:
        raise WrongProviders(f"has the dialect “{dialect}”; write one of {', '.join(DIALECTS)}")
    if azure and dialect != vendors.AZURE_DIALECT:
        raise WrongProviders(f"has azure_api_version and speaks {dialect}; write {vendors.AZURE_ADVICE}")
    return Endpoint(
        name=str(table["name"]),
        label=vendor.label if vendor else "",
        dialect=dialect,
        base_url=base_url.rstrip("/"),
        azure_api_version=azure,
        credentials=_credentials(table),
        key_header="api-key" if azure else DIALECTS[dialect].HTTP_API.key_header,
        models=vendor.models if vendor and base_url == vendor.base_url else (),
        switches=vendors.default_switches(dialect, base_url),
    )


def _credentials(table: Table) -> Credentials:
    written = table.get("credentials", CREDENTIALS[0])
    if written not in CREDENTIALS:
        raise WrongProviders(f'has credentials = "{written}"; write "caller", or leave it out')
    return cast(Credentials, written)


def _check_login(table: Table, start: Endpoint) -> None:
    """Nothing that would mix the operator's account with those of callers, or show a login to others."""
    for key in NOT_WITH_LOGINS:
        if key in table:
            raise WrongProviders(f'has credentials = "caller" and {key}; write one of them')
    if any(name.lower() in FORWARDED_HEADERS for name in table.get("headers", {})):
        raise WrongProviders('has credentials = "caller" and a header for a login; write the file without this header')
    if not is_safe_for_logins(start.base_url):
        raise WrongProviders('has credentials = "caller" and a base_url without encryption; write one with https://')


def _key(table: Table, start: Endpoint, variables: Variables) -> dict[str, Any]:
    """Written here, or in a variable that is named here, or in the variable of a known vendor."""
    if start.takes_login:
        return {}
    vendor = vendors.VENDOR_OF_NAME.get(start.name)
    variable = str(table.get("api_key_env") or (vendor and vendor.key_variable) or "")
    if table.get("api_key") and table.get("api_key_env"):
        raise WrongProviders("has api_key and api_key_env; write one of them")
    header = table.get("key_header", start.key_header)
    if header not in KEY_HEADERS:
        raise WrongProviders(f"has the key_header “{header}”; write one of {', '.join(KEY_HEADERS)}")
    api_key = str(table.get("api_key") or (variable and variables(variable)) or "")
    if not is_key(api_key):
        raise WrongProviders("has a key that is not valid in a header; write it without spaces and line breaks")
    needs_key = bool(table.get("api_key_env")) or (vendor is not None and start.base_url == vendor.base_url)
    return {"api_key": api_key, "key_variable": variable, "needs_key": needs_key, "key_header": header}


def _headers(table: Table) -> dict[str, str]:
    headers = table.get("headers", {})
    for name, value in headers.items():
        if not isinstance(value, str) or not value.isascii() or not value.isprintable() or not is_key(name):
            raise WrongProviders(f"has the header “{name}”; write its value as one line of plain text in quotes")
    return dict(headers)


def _models(table: Table, where: str, *, known: Mapping[str, int]) -> tuple[Model, ...]:
    models = []
    for place, written in enumerate(table.get("models", []), 1):
        with _within(f"{where}, model {place},"):
            models.append(_model(written))
    return tuple(replace(model, window=model.window or known.get(model.name, 0)) for model in models)


def _model(written: object) -> Model:
    table = {"name": written} if isinstance(written, str) else written
    if not isinstance(table, dict):
        raise WrongProviders('is neither a name nor a table; write "name" or { name = "…", window = 8192 }')
    _check(table, MODEL_KEYS)
    name = table.get("name", "")
    if not 0 < len(name) <= LONGEST_MODEL:
        raise WrongProviders(f'has no name; write name = "…" of at most {LONGEST_MODEL} characters')
    for key in ("window", "context_tokens"):
        if table.get(key, 1) < 1:
            raise WrongProviders(f"has {key} = {table[key]}; write a number of tokens, 1 or more")
    if "switches" in table:
        table = {**table, "switches": _switches(table["switches"], Switches())}
    return Model(**table)


def _switches(table: Table, start: Switches) -> Switches:
    hints = get_type_hints(Switches)
    for key, value in table.items():
        if key not in hints:
            raise WrongProviders(
                f"has the switch “{key}”, which does not exist; write one of {', '.join(sorted(hints))}"
            )
        is_flag = hints[key] is bool
        if not (isinstance(value, bool) if is_flag else value in hints[key].__args__):
            wanted = "true or false" if is_flag else f"one of {', '.join(hints[key].__args__)}"
            raise WrongProviders(f"has the switch {key} = {value!r}; write {wanted}")
    return replace(start, **table)


def _timeouts(table: Table) -> Timeouts:
    for key in ("connect_seconds", "idle_seconds"):
        if not 0 < table.get(key, 1) <= MOST_SECONDS:
            raise WrongProviders(
                f"has {key} = {table[key]}; write a number of seconds greater than 0, up to {MOST_SECONDS}"
            )
    if not 1 <= table.get("attempts", 1) <= MOST_ATTEMPTS:
        raise WrongProviders(f"has attempts = {table['attempts']}; write a number from 1 to {MOST_ATTEMPTS}")
    keys = ("connect_seconds", "idle_seconds", "attempts")
    return Timeouts(**{key.removesuffix("_seconds"): table[key] for key in keys if key in table})


def _check(table: Table, known: Types) -> None:
    for key, value in table.items():
        if key not in known:
            raise WrongProviders(f"has the key “{key}”, which does not exist; write one of {', '.join(known)}")
        wanted = known[key]
        # In Python `True` is an int, in a file it is not.
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            shown = "a value of another type" if "key" in key or key == "headers" else repr(value)
            raise WrongProviders(f"has {key} = {shown}; write {WORDS[wanted]}")
