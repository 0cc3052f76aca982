"""Claude Code and Codex with an invented subscription login, set up as the page API keys prints it."""

from __future__ import annotations

import json
from pathlib import Path

from clients.conftest import ACCOUNT, LOGIN, Client, Parley, make_claude_code, make_codex
from clients.played import ClosedProxy, Vendor

WRONG_KEY = "parley_wrong12345_" + "a" * 43


def test_claude_code_uses_its_login_and_parley_stores_nothing_of_it(
    claude_code: Client, parley: Parley, vendor: Vendor, proxy: ClosedProxy
) -> None:
    done = claude_code.run("-p", "hi", "--model", "claude-sonnet-4-5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Played hello." in done.stdout
    calls = [one for one in vendor.seen if one.path.startswith("/v1/messages")]
    assert calls
    for one in calls:
        assert one.headers["authorization"] == f"Bearer {LOGIN}"
        assert "oauth-2025-04-20" in one.headers["anthropic-beta"]
        assert parley.key not in str(one.headers)
        assert "x-api-key" not in one.headers
    assert_is_plan(parley, "claude-plan")
    assert not parley.holds(LOGIN)


def test_claude_code_does_not_renew_its_login_after_a_wrong_key_of_parley(
    parley: Parley, vendor: Vendor, proxy: ClosedProxy, tmp_path: Path
) -> None:
    done = make_claude_code(parley, proxy, tmp_path, key=WRONG_KEY).run("-p", "hi", "--model", "claude-sonnet-4-5")
    assert done.returncode != 0
    assert "403" in done.stdout + done.stderr
    assert not vendor.seen
    assert not any("platform.claude.com" in host for host in proxy.hosts)


def test_claude_code_renews_its_login_after_a_401_of_the_vendor(
    claude_code: Client, parley: Parley, vendor: Vendor, proxy: ClosedProxy
) -> None:
    vendor.is_refusing = True
    done = claude_code.run("-p", "hi", "--model", "claude-sonnet-4-5")
    assert done.returncode != 0
    assert vendor.seen
    assert any("platform.claude.com" in host for host in proxy.hosts)
    assert not parley.holds(LOGIN)


def test_codex_uses_its_login_and_parley_stores_nothing_of_it(
    codex: Client, parley: Parley, vendor: Vendor, proxy: ClosedProxy
) -> None:
    done = codex.run("exec", "--skip-git-repo-check", "hi")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Played hello." in done.stdout
    assert {one.path.partition("?")[0] for one in vendor.seen} == {
        "/backend-api/codex/models",
        "/backend-api/codex/responses",
    }
    for one in vendor.seen:
        assert one.headers["authorization"] == f"Bearer {LOGIN}"
        assert one.headers["chatgpt-account-id"] == ACCOUNT
        assert parley.key not in str(one.headers)
    assert "failed to decode models" not in done.stderr.lower()
    assert_is_plan(parley, "chatgpt-plan")
    assert not parley.holds(LOGIN)
    assert not parley.holds(ACCOUNT)


def test_codex_tries_a_websocket_once(parley: Parley, vendor: Vendor, proxy: ClosedProxy, tmp_path: Path) -> None:
    codex = make_codex(parley, proxy, tmp_path, more="model_providers.parley.supports_websockets = true")
    done = codex.run("exec", "--skip-git-repo-check", "hi")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Played hello." in done.stdout
    assert "Reconnecting" not in done.stdout + done.stderr
    tries = [line for line in parley.log.read_text().splitlines() if "WebSocket" in line and "/v1/responses" in line]
    assert len(tries) == 1
    assert "426" in tries[0]


def test_codex_does_not_renew_its_login_after_a_wrong_key_of_parley(
    parley: Parley, vendor: Vendor, proxy: ClosedProxy, tmp_path: Path
) -> None:
    done = make_codex(parley, proxy, tmp_path, key=WRONG_KEY).run("exec", "--skip-git-repo-check", "hi")
    assert done.returncode != 0
    assert "403" in done.stdout + done.stderr
    assert not vendor.seen
    assert not any("auth.openai.com" in host for host in proxy.hosts)


def assert_is_plan(parley: Parley, provider: str) -> None:
    for exchange in parley.exchanges(1):
        metadata = exchange["metadata"]
        assert isinstance(metadata, dict), json.dumps(exchange)
        assert (exchange["provider"], float(str(exchange["cost"]))) == (provider, 0.0)
        assert metadata["billing"] == "plan"
