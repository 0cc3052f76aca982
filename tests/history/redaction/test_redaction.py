"""Redaction: no secret of any entry reaches the store; nothing else is changed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history import entries
from history.entries import (
    DebugLog,
    Entry,
    Gap,
    HeadMoved,
    Media,
    ModelInput,
    ModelOutput,
    NotebookSet,
    OtherPart,
    PlanSet,
    Reasoning,
    Retracted,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
    UnknownEntry,
    Usage,
    entry_to_json,
)
from history.redaction import redacted, redacted_text, redactors_for
from history.redaction.detectors import FORMATS, NAMED_FORMATS, PERSONAL, SECRETS, TOKENS, personal
from history.redaction.walker import Redactors
from tests.factories import example_count

pytestmark = pytest.mark.no_database

CREDENTIALS = Redactors(credentials=True)
EVERYTHING = Redactors(credentials=True, others=personal([detector.name for detector in PERSONAL]))

# Put together here, so that no scanner takes this file for a leak. The digit comes first, as _A_DIGIT_SOON expects.
BODY = "7Qx9Lm2Rt5Wv8Yb3Nc6Hd1Kf4Gj0PzSa"
B64 = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"
FOUND: dict[str, tuple[str, ...]] = {
    "private-key": (
        f"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{B64}\n{B64}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\\n{B64}\\n-----END OPENSSH PRIVATE KEY-----",
        f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{B64}\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
        f"-----BEGIN PRIVATE KEY-----\n{B64}\n{B64}",
    ),
    "parley-key": (f"parley_ab12cd34ef_{BODY}abcdefghijk",),
    "anthropic-key": (f"sk-ant-api03-{BODY}-{BODY}",),
    "openrouter-key": (f"sk-or-v1-{BODY}",),
    "openai-key": (f"sk-{BODY}", f"sk-proj-{BODY}_{BODY}", f"sk-svcacct-{BODY}"),
    "google-key": (f"AIza{BODY}abc",),
    "google-oauth": (f"ya29.{BODY}", f"GOCSPX-{BODY}"),
    "github-token": (f"ghp_{BODY}abcd", f"ghs_{BODY}abcd", f"github_pat_{BODY}_{BODY}"),
    "gitlab-token": (f"glpat-{BODY[:20]}", f"glpat-{BODY[:27]}.01.0a1b2c3d4"),
    "aws-access-key": ("AKIA" + "IOSFODNN7EXAMPLE", "ASIA" + "IOSFODNN7EXAMPLE"),
    "slack-token": (f"xoxb-123456789012-{BODY}", f"xapp-1-A0{BODY}"),
    "stripe-key": (f"sk_live_{BODY}", f"rk_test_{BODY}", f"whsec_{BODY}"),
    "huggingface-token": (f"hf_{BODY}",),
    "groq-key": (f"gsk_{BODY}",),
    "xai-key": (f"xai-{BODY}{BODY}",),
    "perplexity-key": (f"pplx-{BODY}",),
    "replicate-token": (f"r8_{BODY}",),
    "npm-token": (f"npm_{BODY}abcd",),
    "pypi-token": (f"pypi-AgEIcHlwaS5vcmc{BODY}",),
    "sendgrid-key": (f"SG.{BODY[:22]}.{BODY}",),
    "digitalocean-token": ("dop_v1_" + "0123456789abcdef" * 4,),
    "jwt": (f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{BODY}", f"eyJhbGciOiJkaXIifQ0..{BODY}.{BODY}.{BODY}"),
}  # fmt: skip
# Whole text → the secret in it: what stays around the placeholder tells people what was there.
IN_CONTEXT: dict[str, tuple[tuple[str, str], ...]] = {
    "slack-webhook": (
        (f"https://hooks.slack.com/services/T0123456X/B0123456X/{BODY}", f"/T0123456X/B0123456X/{BODY}"),
    ),
    "aws-secret-key": (
        (f"aws_secret_access_key = {BODY}+/abcde1", f"{BODY}+/abcde1"),
        (f'"SecretAccessKey": "{BODY}+/abcde1"', f"{BODY}+/abcde1"),
        (f"export AWS_SECRET_ACCESS_KEY={BODY}+/abcde1", f"{BODY}+/abcde1"),
    ),
    "authorization": (
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        (f"curl -H 'x-api-key: {BODY}' https://example.org", BODY),
    ),
    "bearer-token": ((f"Authorization: Bearer {BODY}", BODY), (f"bearer%20{BODY}", BODY)),
    "url-password": (
        ("postgres://ada:s3cr3t@db.example.org/parley", "s3cr3t"),
        ("redis://:s3cr3t@cache:6379/0", "s3cr3t"),
        ("https://ada:p@ss:w0rd@example.org/x", "p@ss:w0rd"),
        ("https:\\/\\/ada:s3cr3t@example.org", "s3cr3t"),
    ),
    "url-secret": (
        (f"https://example.org/v1?alt=sse&key={BODY}&x=1", BODY),
        (f"https://bucket.example.org/a?X-Amz-Signature={BODY}", BODY),
    ),
    "assigned-secret": (
        ('password = "hunter2!"', "hunter2!"),
        ('{"db_password": "hunter2!"}', "hunter2!"),
        ('{\\"clientSecret\\": \\"hunter2!\\"}', "hunter2!"),
        ("apiKey: 'hunter-2-hunter'", "hunter-2-hunter"),
        ("DB_PASSWORD=hunter22", "hunter22"),
        ("export SLACK_TOKEN=abc-123-def", "abc-123-def"),
        ("access_token: 'abc123def'", "abc123def"),
        ("PRIVATE_KEY=abc123def", "abc123def"),
    ),
}  # fmt: skip
HARMLESS = [
    "task-1234567890abcdefghijklmnop is done",
    "the sk-learn-compatible-estimator-interface of ours",
    "sk-ssh-ed25519-cert-v01@openssh.com",
    'Client(api_key="your-api-key") and password_field = "usable_password"',
    'TOKEN_ENDPOINT = "/v1/oauth/token" and TOKEN_URI = "https://example.org/oauth2/v4/token"',
    'ENV_API_KEY = "ANTHROPIC_API_KEY"',
    "MAX_TOKENS=128000 and max_tokens: 4096",
    "password = request.POST['password']",
    'password="$DB_PASSWORD" and password: "{{ vault }}" and password="<your password>"',
    '{"type": "password", "label": "Password", "token": "string"}',
    "a bearer of bad news; Bearer authentication-is-described-below",
    "http://localhost:8000/path?page=2&monkey=business",
    "see https://example.org:8443/ and mailto:someone at example.org",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "A line such as -----BEGIN PRIVATE KEY----- opens it, and the text goes on.",
    "data:image/png;base64," + "iVBORw0KGgoAAAANSUhEUgAA" * 40,
    "3f2a9c1e8b7d4f60a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718",
    "123e4567-e89b-42d3-a456-426614174000",
    "今天我们讨论密码学的历史。",
    '[redacted:openai-key] and postgres://ada:[redacted:url-password]@db and password = "[redacted:assigned-secret]"',
]
PERSONAL_FOUND = {
    "email": ("ada.lovelace+notes@example.co.uk", "x@y.org"),
    "phone": ("+44 20 7946 0958", "+8613812345678", "13812345678", "138 1234 5678", "(415) 555-2671", "415-555-2671"),
    "card": ("4111111111111111", "4111 1111 1111 1111", "5500-0000-0000-0004", "3782 822463 10005"),
    "chinese-id": ("11010519491231002X", "440524188001010014"),
}
PERSONAL_HARMLESS = [
    "git@github.com:example/repo.git",
    "4111111111111112 fails the check",
    "110105194912310021 fails the check",
    "1731700000 and 1731700000000 are times",
    "version 10.15.7 of 2024-11-16, π = 3.14159265358979",
    "3f2a13812345678b",
]


def texts_of(value: Any) -> Iterator[str]:
    """Every text that the store would hold: names of fields, values, and what JSON inside a text says."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item)
    elif isinstance(value, str):
        yield value
        with suppress(ValueError):
            yield from texts_of(json.loads(value)) if value[:1] in '{["' else ()
    elif value is not None:
        yield str(value)


def holds(entry: Entry, secret: str) -> bool:
    return any(secret in text for text in texts_of(entry_to_json(entry)))


# What is found.


@pytest.mark.parametrize(("name", "secret"), [(name, secret) for name, all_ in FOUND.items() for secret in all_])
@pytest.mark.parametrize(
    "frame", ["{}", "it is {}.", '"{}"', "={}", "\\n{}\\n", "（{}）", "%3D{}&", "\n{}\n", "\x00{}\x00"]
)
def test_a_credential_is_replaced_by_a_placeholder_that_names_it(name: str, secret: str, frame: str) -> None:
    kept = frame.format(f"[redacted:{name}]")
    assert redacted_text(frame.format(secret), CREDENTIALS) == (kept, Counter({name: 1}))


@pytest.mark.parametrize(("name", "pair"), [(name, pair) for name, all_ in IN_CONTEXT.items() for pair in all_])
def test_of_a_secret_in_its_place_only_the_secret_goes(name: str, pair: tuple[str, str]) -> None:
    text, secret = pair
    assert redacted_text(text, CREDENTIALS) == (text.replace(secret, f"[redacted:{name}]"), Counter({name: 1}))


def test_every_detector_is_shown_by_an_example() -> None:
    """Those of `token_formats.toml` have theirs in `test_token_formats`."""
    formats = {one.name for one in (*FORMATS, *NAMED_FORMATS)}
    shown = set(FOUND) | set(IN_CONTEXT)
    assert {detector.name for detector in (*TOKENS, *FORMATS, *SECRETS)} == shown | formats
    assert {detector.name for detector in PERSONAL} == set(PERSONAL_FOUND)


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redacted_text(text, CREDENTIALS) == (text, Counter())


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, all_ in PERSONAL_FOUND.items() for text in all_])
@pytest.mark.parametrize("frame", ["{}", "call {}, please", "电话{}。", "\\n{}\\n", '"{}"'])
def test_personal_data_is_found_only_where_it_was_asked_for(name: str, text: str, frame: str) -> None:
    whole = frame.format(text)
    assert redacted_text(whole, Redactors(others=personal([name]))) == (frame.format(f"[redacted:{name}]"), {name: 1})
    assert redacted_text(whole, CREDENTIALS) == (whole, Counter())


@pytest.mark.parametrize("text", PERSONAL_HARMLESS)
def test_what_is_no_personal_data_stays(text: str) -> None:
    assert redacted_text(text, EVERYTHING) == (text, Counter())


@pytest.mark.parametrize(
    "piece",
    ["sk-", "sk-a", "eyJ", "eyJ.", "eyJaaaaaaaaaaaaa.", "://", "://a:", "://a:b", "-----BEGIN PRIVATE KEY-----",
     "-----BEGIN PRIVATE KEY-----\nAAAAAAAAAAAAAAAAAAAA\n", "-----BEGIN PRIVATE KEY-----a-b", "SECRET", "SECRET=a1",
     "password=", 'password="', "Bearer ", "Bearer a", "a@", "a", "a.", "1", "1 ", "+1", "1-", "4111 ", "(", "?key=",
     "xoxb-", "\\n", "github_pat_", "AIzaa", "hooks.slack.com/services/", "parley_aaaa_", "@a.", "[redacted:",
     "2222222222222222222 "],
)  # fmt: skip
def test_no_text_is_slow_to_search(piece: str) -> None:
    """CPU time of 200,000 characters; anything quadratic would take minutes."""
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    redacted_text(text, EVERYTHING)
    assert time.process_time() - start < 3


# Entries of any kind.

SAMPLES = [secret for all_ in FOUND.values() for secret in all_]
plain = st.text(max_size=12)
joints = st.sampled_from([" ", "\n", "\\n", '"', "=", "(", "、", "\x00", "{", "'"])


@st.composite
def planted(draw: st.DrawFn) -> str:
    before, after = draw(plain), draw(plain)
    return f"{before}{draw(joints)}{draw(st.sampled_from(SAMPLES))}{draw(joints)}{after}"


def trees(text: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats(allow_nan=False) | text
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2), max_leaves=4
    )


def entries_with(text: st.SearchStrategy[str]) -> st.SearchStrategy[Entry]:
    """An entry of any kind, with `text` in every place that can hold one."""
    mapping = st.dictionaries(text, trees(text), max_size=2)
    common = {"extra": mapping}
    part: st.SearchStrategy[Any] = st.one_of(
        st.builds(Text, text=text, **common),
        st.builds(Media, media_type=text, sha256=text, url=text, name=text, **common),
        st.builds(Reasoning, text=text, signature=text, provider=text, redacted=text, **common),
        st.builds(ToolRequest, call_id=text, name=text, arguments=trees(text).map(json.dumps) | text, **common),
        st.builds(OtherPart, data=st.builds(lambda kind, rest: {**rest, "type": kind}, text, mapping)),
    )
    parts = st.lists(part, max_size=2).map(tuple)
    tool = st.builds(ToolDefinition, name=text, description=text, parameters=mapping, **common)
    usage = st.builds(Usage, raw=mapping, **common)
    result = st.builds(ToolResult, call_id=text, name=text, parts=parts, error=text, metadata=mapping, **common)
    shared: dict[str, Any] = {"agent": text, "metadata": mapping, "extra": mapping}
    return st.one_of(
        st.builds(SystemInstructionSet, instruction=text, **shared),
        st.builds(ToolsOffered, tools=st.lists(tool, max_size=2).map(tuple), **shared),
        st.builds(NotebookSet, content=text, author=text, **shared),
        st.builds(PlanSet, plan=text, **shared),
        st.builds(ModelInput, channel=text, parts=parts, raw=st.none() | text, **shared),
        st.builds(
            ModelOutput, plan=st.none() | text, parts=parts, provider=text, model=text, end_reason=text, error=text,
            usage=st.none() | usage, request_id=text, **shared,
        ),
        st.builds(ToolResults, results=st.lists(result, max_size=2).map(tuple), overall=text, **shared),
        st.builds(Summary, summary=text, provider=text, model=text, **shared),
        st.builds(Retracted, seq=st.just(1), reason=text, **shared),
        st.builds(HeadMoved, to=st.just(1), reason=text, **shared),
        st.builds(Gap, reason=text, **shared),
        st.builds(DebugLog, category=text, message=text, **shared),
        st.builds(UnknownEntry, data=st.builds(lambda kind, rest: {**rest, "kind": kind}, text, mapping)),
    )  # fmt: skip


def test_the_property_tests_know_every_kind() -> None:
    known = {*entries.KINDS.values(), UnknownEntry}
    made = {Retracted, HeadMoved, Gap, DebugLog, UnknownEntry, SystemInstructionSet, ToolsOffered, NotebookSet}
    assert known == made | {PlanSet, ModelInput, ModelOutput, ToolResults, Summary}


@settings(max_examples=example_count(150), deadline=None)
@given(entries_with(planted() | plain))
def test_no_planted_secret_survives_anywhere_in_what_is_stored(entry: Entry) -> None:
    result = redacted(entry, CREDENTIALS)
    survivors = [secret for secret in SAMPLES if holds(result.entry, secret)]
    assert survivors == []
    assert bool(result.hits) == any(holds(entry, secret) for secret in SAMPLES)


@settings(max_examples=example_count(150), deadline=None)
@given(entries_with(plain))
def test_an_entry_without_secrets_is_the_same_object(entry: Entry) -> None:
    result = redacted(entry, CREDENTIALS)
    assert result.entry is entry
    assert result.hits == Counter()


@settings(max_examples=example_count(150), deadline=None)
@given(entries_with(planted() | plain))
def test_redacting_twice_finds_nothing_more(entry: Entry) -> None:
    once = redacted(entry, CREDENTIALS).entry
    assert redacted(once, CREDENTIALS).hits == Counter()


def test_a_password_goes_as_a_whole_even_where_a_part_of_it_looks_like_a_key() -> None:
    key = FOUND["anthropic-key"][0]
    said = {"password": f"x1={key}", "note": f"a={key}"}
    once = redacted(ModelInput(metadata=said), CREDENTIALS)
    assert once.entry.metadata["password"] == "[redacted:assigned-secret]"
    assert once.entry.metadata["note"] == "a=[redacted:anthropic-key]"
    again = {**once.entry.metadata, "password": once.entry.metadata["note"]}
    assert redacted(ModelInput(metadata=again), CREDENTIALS).hits == Counter()


@settings(max_examples=example_count(150), deadline=None)
@given(trees(planted() | plain), st.booleans(), st.sampled_from([None, 2]))
def test_arguments_that_are_json_stay_json_of_the_same_shape(tree: Any, escape: bool, indent: int | None) -> None:
    request = ToolRequest(call_id="1", name="t", arguments=json.dumps(tree, ensure_ascii=escape, indent=indent))
    result = redacted(ModelOutput(parts=(request,)), CREDENTIALS).entry
    assert isinstance(result, ModelOutput)
    assert shape(json.loads(result.tool_requests[0].arguments)) == shape(tree)


def shape(tree: Any) -> Any:
    if isinstance(tree, dict):
        return [shape(item) for item in tree.values()]
    return [shape(item) for item in tree] if isinstance(tree, list) else type(tree)


@given(st.sampled_from(SAMPLES), st.integers(0, 40))
def test_arguments_that_were_cut_off_lose_their_secrets_too(secret: str, cut: int) -> None:
    whole = json.dumps({"path": "a", "content": f"x {secret} y", "more": "z" * 50})
    request = ToolRequest(call_id="1", name="t", arguments=whole[: len(whole) - cut])
    result = redacted(ModelOutput(parts=(request,)), CREDENTIALS).entry
    assert isinstance(result, ModelOutput)
    assert secret not in result.tool_requests[0].arguments
    assert json.dumps(secret)[1:-1] not in result.tool_requests[0].arguments


def arguments_after(arguments: str, redactors: Redactors = CREDENTIALS) -> str:
    result = redacted(ModelOutput(parts=(ToolRequest(call_id="1", name="t", arguments=arguments),)), redactors).entry
    assert isinstance(result, ModelOutput)
    return result.tool_requests[0].arguments


def test_arguments_keep_every_character_that_is_not_secret() -> None:
    written = '{ "n": 1.50e+3,  "n": 12345678901234567890.5, "s":"\\u00e9 \\/", "k" : "sk-' + BODY + '" }'
    assert arguments_after(written) == written.replace(f"sk-{BODY}", "[redacted:openai-key]")


@pytest.mark.parametrize("piece", ['"\\', '\\"', '\\"x\\n', '"a":', '"'])
def test_arguments_that_were_cut_off_are_searched_in_one_pass(piece: str) -> None:
    secret = "sk-ant-" + "a1B2" * 12
    request = ToolRequest(call_id="c", name="write", arguments='{"content": "' + piece * 100_000 + " " + secret)
    start = time.process_time()
    kept = redacted(ModelOutput(parts=(request,)), CREDENTIALS).entry
    assert time.process_time() - start < 3
    assert isinstance(kept, ModelOutput)
    assert secret not in kept.tool_requests[0].arguments


def test_a_secret_that_is_escaped_in_json_is_found() -> None:
    assert arguments_after('{"k": "s\\u006b-' + BODY + '"}') == '{"k": "[redacted:openai-key]"}'


def test_a_value_is_secret_because_of_its_name() -> None:
    assert arguments_after('{"password": "hunter2!", "n": {"api_key":"a1b2c3d4"}}') == (
        '{"password": "[redacted:assigned-secret]", "n": {"api_key":"[redacted:assigned-secret]"}}'
    )
    entry = Gap(
        metadata={"headers": {"Authorization": "Basic dXNlcjpwYXNz"}, "password": "hunter2!", "tokens": "12 of 90"}
    )
    result = redacted(entry, CREDENTIALS)
    assert entry_to_json(result.entry)["metadata"] == {
        "headers": {"Authorization": "[redacted:authorization]"},
        "password": "[redacted:assigned-secret]",
        "tokens": "12 of 90",
    }
    assert result.hits == Counter({"authorization": 1, "assigned-secret": 1})


def test_a_number_can_be_personal_data() -> None:
    cards = Redactors(others=personal(["card"]))
    assert arguments_after('{"card": 4111111111111111, "n": 1.4111111111111111}', cards) == (
        '{"card": "[redacted:card]", "n": 1.4111111111111111}'
    )
    kept = redacted(Gap(metadata={"card": 4111111111111111, "n": 1731700000000}), cards).entry
    assert kept.metadata == {"card": "[redacted:card]", "n": 1731700000000}


def test_a_number_of_our_own_schema_stays_a_number() -> None:
    media = Media(media_type="video/mp4", size=4111111111111111)
    entry = ModelInput(parts=(media,))
    assert redacted(entry, EVERYTHING).entry is entry


def test_two_names_that_become_one_placeholder_keep_both_values() -> None:
    entry = Gap(metadata={f"sk-{BODY}": 1, f"sk-{BODY}x": 2})
    assert redacted(entry, CREDENTIALS).entry.metadata == {"[redacted:openai-key]": 1, "[redacted:openai-key] 2": 2}


def test_redacted_reasoning_loses_its_signature_and_the_other_parts_keep_theirs() -> None:
    leaky = Reasoning(text=f"the key is sk-{BODY}", signature="signed", redacted="opaque", provider="anthropic")
    clean = Reasoning(text="nothing here", signature="signed", provider="anthropic")
    result = redacted(ModelOutput(parts=(leaky, clean)), CREDENTIALS).entry
    assert isinstance(result, ModelOutput)
    assert result.parts[0] == Reasoning(text="the key is [redacted:openai-key]", provider="anthropic")
    assert result.parts[1] is clean


def test_hits_are_counted_over_the_whole_entry() -> None:
    entry = ModelInput(parts=(Text(text=f"sk-{BODY} sk-{BODY}"), Text(text=f"ghp_{BODY}abcd")), raw=f"sk-{BODY}")
    assert redacted(entry, CREDENTIALS).hits == Counter({"openai-key": 3, "github-token": 1})


def test_the_original_entry_is_not_touched() -> None:
    entry = SystemInstructionSet(instruction=f"sk-{BODY}")
    redacted(entry, CREDENTIALS)
    assert entry.instruction == f"sk-{BODY}"


def test_names_are_searched_for_credentials_but_not_for_personal_data() -> None:
    request = ToolRequest(call_id="4111111111111111", name=f"sk-{BODY}", arguments='{"to": "x@y.org"}')
    result = redacted(ModelOutput(parts=(request,)), EVERYTHING).entry
    assert isinstance(result, ModelOutput)
    assert result.parts == (
        ToolRequest(call_id="4111111111111111", name="[redacted:openai-key]", arguments='{"to": "[redacted:email]"}'),
    )


def test_ten_megabytes_are_searched_in_a_moment() -> None:
    text = "the quick brown fox jumps over the lazy dog\n" * 240_000 + f"sk-{BODY}"
    start = time.process_time()
    kept, hits = redacted_text(text, redactors_for("redacted"))
    assert time.process_time() - start < 3
    assert kept.endswith("[redacted:openai-key]")
    assert hits == Counter({"openai-key": 1})
