"""Key formats of many vendors are found; what only looks like one stays. Secrets are put together at run time."""

from __future__ import annotations

import base64
import hashlib
import random
import re
import string
import uuid
from collections import Counter

import pytest

from bench.growth import assert_linear
from history.redaction.detectors import FORMATS, NAMED_FORMATS, without_credentials

HEX, LOWER, UPPER = (
    string.digits + "abcdef",
    string.ascii_lowercase + string.digits,
    string.ascii_uppercase + string.digits,
)
WORD, SAFE, BASE64 = (
    string.ascii_letters + string.digits,
    string.ascii_letters + string.digits + "_-",
    string.ascii_letters + string.digits + "+/",
)
BECH = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"


def of(alphabet: str, length: int, *, seed: int = 0) -> str:
    """Random characters, a digit among the first of them."""
    chance = random.Random(f"{alphabet}{length}{seed}")
    made = "".join(chance.choice(alphabet) for _ in range(length))
    return made[:2] + "7" + made[3:] if length > 3 and "7" in alphabet else made


def some_uuid() -> str:
    return str(uuid.UUID(int=random.Random(5).getrandbits(128)))


def secrets() -> list[tuple[str, str]]:
    """(detector, a text of that format); pieces keep scanners of the repository calm."""
    return [
        ("azure-key", "AccountName=x;Account" + "Key=" + of(BASE64, 86) + "=="),
        ("azure-key", "Endpoint=sb://x/;SharedAccess" + "Key=" + of(BASE64, 43) + "="),
        ("azure-key", "AZURE_STORAGE_" + "KEY=" + of(BASE64, 86, seed=1) + "=="),
        ("azure-key", of(BASE64, 76) + "+A" + "St" + of(WORD, 6) + "=="),
        ("azure-key", of(WORD, 52) + "JQQ" + "J99" + of(WORD, 26)),
        ("azure-key", of(WORD, 3) + "8Q" + "~" + of(SAFE, 34)),
        ("azure-key", of(WORD, 76) + "AZ" + "DO" + of(WORD, 4)),
        ("cloudflare-token", "cf" + "ut_" + of(WORD, 48)),
        ("cloudflare-token", "v1" + ".0-" + of(HEX, 24) + "-" + of(HEX, 146)),
        ("cloudflare-token", "X-Auth-" + "Key: " + of(HEX, 37)),
        ("fly-token", "fo" + "1_" + of(SAFE, 43)),
        ("fly-token", "FlyV1 fm" + "2_" + of(BASE64, 120)),
        ("heroku-key", "HR" + "KU-" + some_uuid()),
        ("netlify-token", "nf" + "p_" + of(WORD, 36)),
        ("vercel-token", "vc" + "p_" + of(WORD, 56)),
        ("databricks-token", "da" + "pi" + of(HEX, 32)),
        ("databricks-token", "da" + "pi" + of(HEX, 32) + "-2"),
        ("planetscale-token", "pscale" + "_tkn_" + of(SAFE, 43)),
        ("planetscale-token", "pscale" + "_pw_" + of(SAFE, 43)),
        ("supabase-key", "sb" + "p_" + of(HEX, 40)),
        ("supabase-key", "sb_" + "secret_" + of(SAFE, 31)),
        ("neon-key", "na" + "pi_" + of(LOWER, 64)),
        ("pinecone-key", "pc" + "sk_" + of(WORD, 6) + "_" + of(WORD, 60)),
        ("airtable-token", "pa" + "t" + of(WORD, 14) + "." + of(HEX, 64)),
        ("vault-token", "hv" + "s." + of(SAFE, 90)),
        ("vault-token", "hv" + "b." + of(SAFE, 130)),
        ("terraform-token", of(WORD, 14) + ".atlas" + "v1." + of(SAFE, 67)),
        ("doppler-token", "dp" + ".pt." + of(WORD, 43)),
        ("doppler-token", "dp" + ".st.dev_api." + of(WORD, 43)),
        ("pulumi-token", "pu" + "l-" + of(HEX, 40)),
        ("docker-token", "dckr" + "_pat_" + of(SAFE, 27)),
        ("atlassian-token", "ATATT" + "3xFfGF0" + of(SAFE, 180)),
        ("atlassian-token", "AT" + "BB" + of(WORD, 32)),
        ("linear-key", "lin" + "_api_" + of(WORD, 40)),
        ("notion-token", "sec" + "ret_" + of(WORD, 43)),
        ("notion-token", "nt" + "n_" + of(WORD, 46)),
        ("postman-key", "PM" + "AK-" + of(HEX, 24) + "-" + of(HEX, 34)),
        ("newrelic-key", "NR" + "AK-" + of(UPPER, 27)),
        ("newrelic-key", of(HEX, 36) + "NR" + "AL"),
        ("grafana-token", "gl" + "sa_" + of(WORD, 32) + "_" + of(HEX, 8)),
        ("grafana-token", "gl" + "c_" + of(BASE64, 80)),
        ("sentry-token", "sn" + "trys_" + of(BASE64, 90) + "_" + of(BASE64, 43)),
        ("sentry-token", "sn" + "tryu_" + of(HEX, 64)),
        ("tailscale-key", "ts" + "key-auth-" + of(WORD, 12) + "CNTRL-" + of(WORD, 32)),
        ("age-key", "AGE-SECRET" + "-KEY-1" + of(BECH, 58)),
        ("rubygems-key", "ruby" + "gems_" + of(HEX, 48)),
        ("circleci-token", "CCI" + "PAT_" + of(WORD, 22) + "_" + of(HEX, 40)),
        ("buildkite-token", "bk" + "ua_" + of(HEX, 40)),
        ("sonar-token", "sq" + "p_" + of(HEX, 40)),
        ("sourcegraph-token", "sg" + "p_" + of(HEX, 16) + "_" + of(HEX, 40)),
        ("figma-token", "fi" + "gd_" + of(SAFE, 43)),
        ("kubernetes-key", "    client-key-" + "data: " + of(BASE64, 400)),
        ("docker-login", '{"ghcr.io": {"au' + 'th": "' + base64.b64encode(b"ada:hunter2hunter2").decode() + '"}}'),
        ("wireguard-key", "Private" + "Key = " + of(BASE64, 43) + "="),
        ("discord-token", "M" + of(WORD, 25) + "." + of(SAFE, 6) + "." + of(SAFE, 38)),
        ("discord-webhook", "https://discord.com/api/web" + "hooks/" + "1" * 19 + "/" + of(SAFE, 68)),
        ("telegram-token", "8" * 10 + ":A" + "A" + of(SAFE, 33)),
        ("twilio-key", "S" + "K" + of(HEX, 32)),
        ("mailgun-key", "ke" + "y-" + of(HEX, 32)),
        ("mailgun-key", of(HEX, 32) + "-" + of(HEX, 8) + "-" + of(HEX, 8, seed=2)),
        ("mailchimp-key", of(HEX, 32) + "-u" + "s21"),
        ("brevo-key", "xkey" + "sib-" + of(HEX, 64) + "-" + of(WORD, 16)),
        ("resend-key", "r" + "e_" + of(WORD, 8) + "_" + of(WORD, 24)),
        ("shopify-token", "sh" + "pat_" + of(HEX, 32)),
        ("square-token", "sq" + "0atp-" + of(SAFE, 22)),
        ("square-token", "EA" + "AA" + of(SAFE, 60)),
        ("plaid-token", "access-" + "production-" + some_uuid()),
        ("hubspot-token", "pat-" + "na1-" + some_uuid()),
        ("asana-token", "1/" + "1" * 16 + ":" + of(HEX, 32)),
        ("nvidia-key", "nv" + "api-" + of(SAFE, 64)),
        ("langsmith-key", "lsv" + "2_pt_" + of(HEX, 32) + "_" + of(HEX, 10)),
        ("together-key", "tg" + "p_v1_" + of(SAFE, 43)),
        ("tavily-key", "tv" + "ly-dev-" + of(WORD, 32)),
        ("elevenlabs-key", "s" + "k_" + of(HEX, 48)),
        ("cerebras-key", "cs" + "k-" + of(LOWER, 48)),
        ("openai-session", "se" + "ss-" + of(WORD, 40)),
        ("nostr-key", "ns" + "ec1" + of(BECH.lower(), 58)),
        ("gitlab-token", "gl" + "soat-" + of(SAFE, 20)),
        ("aws-bedrock-key", "AB" + "SK" + of(BASE64, 128)),
        ("amazon-key", "amzn" + ".mws." + some_uuid()),
        ("alibaba-key", "LT" + "AI" + of(WORD, 20)),
        ("tencent-key", "AK" + "ID" + of(WORD, 32)),
        ("google-oauth", "1/" + "/0" + of(SAFE, 60)),
        ("render-key", "rn" + "d_" + of(WORD, 28)),
        ("scaleway-key", "SC" + "W" + of(UPPER, 17)),
        ("mongodb-key", "mdb" + "_sa_sk_" + of(SAFE, 40)),
        ("elastic-key", "es" + "su_" + of(BASE64, 64)),
        ("crates-token", "ci" + "o" + of(WORD, 32)),
        ("nuget-key", "oy" + "2" + of(LOWER, 43)),
        ("clojars-token", "CLO" + "JARS_" + of(LOWER, 60)),
        ("artifactory-key", "AK" + "Cp" + of(WORD, 69)),
        ("prefect-key", "pn" + "u_" + of(WORD, 36)),
        ("dbt-token", "db" + "tc_" + of(SAFE, 40)),
        ("contentful-token", "CF" + "PAT-" + of(SAFE, 43)),
        ("readme-key", "rd" + "me_" + of(LOWER, 70)),
        ("wakatime-key", "wa" + "ka_" + some_uuid()),
        ("onepassword-token", "op" + "s_eyJ" + of(SAFE, 200)),
        ("harness-token", "pa" + "t." + of(SAFE, 22) + "." + of(HEX, 24) + "." + of(WORD, 20)),
        ("launchdarkly-key", "sd" + "k-" + some_uuid()),
        ("teams-webhook", "https://x.web" + "hook.office.com/webhookb2/" + some_uuid() + "@" + some_uuid()),
        ("matrix-token", "sy" + "t_" + of(WORD, 12) + "_" + of(string.ascii_letters, 20) + "_" + of(WORD, 6)),
        ("okta-token", "SS" + "WS 00" + of(SAFE, 40)),
        ("facebook-token", "EA" + "A" + of(WORD, 160)),
        ("paypal-token", "access_token" + "$production$" + of(LOWER, 16) + "$" + of(HEX, 32)),
        ("razorpay-key", "rzp" + "_live_" + of(WORD, 14)),
        ("flutterwave-key", "FLW" + "SECK-" + of(WORD, 32) + "-X"),
        ("shippo-token", "ship" + "po_live_" + of(HEX, 40)),
        ("easypost-key", "EZ" + "AK" + of(WORD, 54)),
        ("duffel-token", "duf" + "fel_live_" + of(SAFE, 43)),
        ("clickup-token", "p" + "k_" + "1234567_" + of(UPPER, 32)),
        ("typeform-token", "tf" + "p_" + of(SAFE, 44)),
        ("dropbox-token", "s" + "l." + of(SAFE, 140)),
        ("twitter-token", "A" * 20 + "BT7" + "%2B" + of(WORD, 60)),
        ("segment-token", "sg" + "p_" + "Z" + of(WORD, 63)),
        ("wallet-key", "xp" + "rv" + of(WORD, 107)),
        ("fireworks-key", "f" + "w_" + of(WORD, 24)),
        ("jina-key", "ji" + "na_" + of(HEX, 32) + of(SAFE, 28)),
        ("firecrawl-key", "f" + "c-" + of(HEX, 32)),
        ("brave-key", "BS" + "A" + of(SAFE, 28)),
        ("runpod-key", "rp" + "a_" + of(UPPER, 40)),
        ("e2b-key", "e2" + "b_" + of(HEX, 40)),
        ("inngest-key", "sign" + "key-prod-" + of(HEX, 64)),
        ("wandb-key", "wandb" + "_v1_" + of(SAFE, 60)),
        ("kaggle-key", "KG" + "AT_" + of(HEX, 32)),
        ("huggingface-token", "api" + "_org_" + of(string.ascii_letters, 34)),
        ("voyage-key", "p" + "a-" + of(SAFE, 43)),
        ("modal-token", "a" + "k-" + of(WORD, 22)),
        ("zhipu-key", of(HEX, 32) + "." + of(WORD, 16)),
        ("snyk-token", "sn" + "yk_uat." + of(HEX, 8) + "." + of(SAFE, 90)),
        ("dynatrace-token", "dt" + "0c01." + of(UPPER, 24) + "." + of(UPPER, 64)),
        ("honeycomb-key", "hc" + "aik_" + of(LOWER, 58)),
        ("posthog-key", "ph" + "x_" + of(WORD, 43)),
        ("infracost-key", "ic" + "o-" + of(WORD, 32)),
        ("scalingo-token", "tk" + "-us-" + of(SAFE, 48)),
        ("frameio-token", "fi" + "o-u-" + of(SAFE, 64)),
        ("mapbox-token", "s" + "k.eyJ1" + of(WORD, 70) + "." + of(SAFE, 22)),
        ("putty-key", "Private-" + "Lines: 1\n" + of(BASE64, 48)),
        ("jwk-key", '{"kty": "EC", "d": "' + of(SAFE, 43)),
        ("aws-session-token", '"Session' + 'Token": "' + of(BASE64, 300)),
        ("npm-token", "//registry.npmjs.org/:_auth" + "Token=" + some_uuid()),
        ("curl-password", "curl -s -u ada:" + of(WORD, 12)),
    ]  # fmt: skip


FRAMES = ("{}", "the key is {} and works", '{{"key": "{}"}}', "export X={}\n", "first\\n{}\\nlast", "（{}）", "`{}`")


SECRETS = secrets()


@pytest.mark.parametrize(
    ("name", "secret"), SECRETS, ids=[f"{name}-{number}" for number, (name, _) in enumerate(SECRETS)]
)
def test_a_key_is_found_wherever_it_stands(name: str, secret: str) -> None:
    told = re.split(r"Key=|KEY=|Token=|ada:|\"Token\": |[ /\n]", secret)[-1].strip('"}=')
    for frame in FRAMES:
        hits: Counter[str] = Counter()
        kept = without_credentials(frame.format(secret), hits)
        assert told not in kept, frame
        assert hits, frame
    assert name in hits


def innocent() -> list[str]:
    chance = random.Random(3)
    picture = base64.b64encode(chance.randbytes(30_000)).decode()
    zeros = base64.b64encode(bytes(3_000) + chance.randbytes(3_000)).decode()
    digest = hashlib.sha512(b"x").digest()
    return [
        hashlib.sha1(b"commit").hexdigest(),
        hashlib.md5(b"cache").hexdigest(),
        f"index {hashlib.sha1(b'a').hexdigest()[:7]}..{hashlib.sha1(b'b').hexdigest()[:7]} 100644",
        f"sha256:{hashlib.sha256(b'image').hexdigest()}",
        f'"integrity": "sha512-{base64.b64encode(digest).decode()}"',
        some_uuid(),
        f"session-{some_uuid()}",
        f"req_{of(WORD, 24)}",
        f"msg_{of(WORD, 24)}",
        f"toolu_{of(WORD, 24)}",
        f"call_{of(WORD, 24)}",
        f"chatcmpl-{of(WORD, 29)}",
        f"resp_{of(HEX, 48)}",
        f"data:image/png;base64,{picture}",
        f"data:image/png;base64,EAAA{picture}",
        picture,
        zeros,
        "claude-sonnet-4-5-20250929",
        "anthropic.claude-3-5-sonnet-20241022-v2:0",
        "ft:gpt-4o-mini-2024-07-18:my-org::AbCdEf12",
        "accounts/fireworks/models/llama-v3p1-405b-instruct",
        "gemini-2.5-flash-preview-native-audio-dialog-2025",
        "us.meta.llama3-2-90b-instruct-v1:0",
        "pk_bench_results_of_2024_by_region_and_customer_segment",
        "re_compile_the_patterns_of_2024_before_they_are_needed",
        "secret_santa_list_for_the_office_party_in_december",
        "key-value-store-of-the-settings-page",
        "sess-timeout-handling-in-the-login-form",
        "pat-eu-2024-report-for-the-board",
        "https://example.com/api/webhooks/list",
        "https://example.com/a/very/long/path/with/many/parts/index.html?page=2",
        "The SKU is SK-1234 and the serial number is AC-99-7777.",
        "com.example.module.submodule.ClassName.methodName.anotherName",
        "Mississippi.example.internal.company.with.dots",
        "12345678:30 minutes, 1/2024:05",
        "PrivateKey = load(path)",
        '"auth": "basic", "auth": "none"',
        "client-key-data: REDACTED",
        "X-Auth-Key: your-key-here",
        "AccountKey=<your account key>",
        "tskey-auth-... is how they begin",
        "hvs. tokens and dp.st. tokens",
        "Private-Lines: 12\nof the file",
        '{"d": "M10 10 L20 20", "k": "value"}',
        "pa-interface-definition-language-for-the-new-world-of-2024",
        "ak-47 as-is ico-file.png",
        f"{hashlib.md5(b'bundle').hexdigest()}.bundle.js",
        f"assets/{hashlib.md5(b'bundle').hexdigest()}.JavaScriptBundle",
        "curl -u $USER:$PASSWORD https://example.com",
        "session_token: expired",
        "_authToken=${NPM_TOKEN}",
        "APP_KEY=$APP_KEY",
        f"traceparent: 00-{of(HEX, 32)}-{of(HEX, 16)}-01",
        f"SHA256:{of(BASE64, 43)}",
        "2024-11-18T10:00:00.000Z 7f000001-0001-0001-0001-000000000001",
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(len(innocent())))
def test_what_only_looks_like_a_key_stays(number: int) -> None:
    text = innocent()[number]
    for frame in ("{}", "see {} for more", '{{"id": "{}"}}'):
        hits: Counter[str] = Counter()
        assert without_credentials(frame.format(text), hits) == frame.format(text), hits


def test_every_format_has_an_example() -> None:
    assert {name for name, _secret in secrets()} == {one.name for one in (*FORMATS, *NAMED_FORMATS)}


@pytest.mark.parametrize(
    "piece",
    [
        "a1",
        "M7abc_-.",
        "-",
        "A",
        "1/",
        "sk",
        "eyJ",
        "key-a1 ",
        "0:AA",
        "v1.0-",
        "Private",
        "secret_",
        "EAAA",
        "%2F",
        "\\n",
    ],
)
def test_searching_takes_linear_time(piece: str) -> None:
    """Also in texts that are made of the beginnings of keys."""
    assert_linear(lambda text: without_credentials(text, Counter()), lambda n: piece * n, size=20_000)
