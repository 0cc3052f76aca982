"""Headers of a vendor's subscription login: which account it is for, and how to recognise it."""

from collections.abc import Mapping

# Goes along with a login of ChatGPT. It names the account, so it is treated like a credential.
ACCOUNT_HEADER = "chatgpt-account-id"
_BETA_HEADER, _LOGIN_BETA = "anthropic-beta", "oauth-"


def declares_login(headers: Mapping[str, str]) -> bool:
    """Whether the client says that its `Authorization` is a subscription login and not an API key."""
    betas = headers.get(_BETA_HEADER, "").split(",")
    return ACCOUNT_HEADER in headers or any(beta.strip().startswith(_LOGIN_BETA) for beta in betas)
