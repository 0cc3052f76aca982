"""Settings of Parley, from the environment and from `.env`, listed in `.env.example` and `docs/settings.md`.

An invalid value stops the start with one line that says what to write instead.
"""

from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
import django_stubs_ext
from csp.constants import NONE, SELF
from django.utils.translation import gettext_lazy as _

from project.config.env import Environment, key_from, local_url
from project.config.installation import TREE, home_folder
from relay.providers.endpoints import is_address, is_key
from relay.providers.toml_config import ProvidersFile, read_file
from relay.usage.prices import Price, read_prices

django_stubs_ext.monkeypatch()

BASE_DIR = TREE
HOME_DIR = home_folder()
env = Environment.of_process(HOME_DIR / ".env")

# Addresses and folders

PARLEY_DATA_DIR = env.path("PARLEY_DATA_DIR", HOME_DIR / "data", base=HOME_DIR)
HOST = env.text("HOST", "127.0.0.1")
PORT = env.whole_number("PORT", 8000, least=1, most=65535)
_WEB = ("http", "https")
PARLEY_URL = env.url("PARLEY_URL", local_url(HOST, PORT), schemes=_WEB, example="https://parley.example.org").rstrip(
    "/"
)
PARLEY_TRUSTED_PROXIES = env.whole_number("PARLEY_TRUSTED_PROXIES", 0, most=10)
PARLEY_BACKGROUND = env.flag("PARLEY_BACKGROUND", True)

DEBUG = env.flag("DEBUG", False)
_url = urlsplit(PARLEY_URL)
_served_over_https = _url.scheme == "https"
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
if _url.hostname and _url.hostname not in ALLOWED_HOSTS:
    ALLOWED_HOSTS.append(_url.hostname)

# Secrets: from the environment, or made on the first run and kept in the data directory


def _secret(name: str) -> str:
    secret = env.text(name)
    if 0 < len(secret) < 32:
        env.refuse(name, "write at least 32 random characters, or leave it out to generate one")
    return secret


SECRET_KEY, _fingerprint_key = _secret("SECRET_KEY"), _secret("PARLEY_FINGERPRINT_KEY")
try:
    PARLEY_DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
    # WhiteNoise complains of a folder that is not there.
    (PARLEY_DATA_DIR / "static").mkdir(exist_ok=True)
    (PARLEY_DATA_DIR / "uploads").mkdir(exist_ok=True, mode=0o700)
    SECRET_KEY = SECRET_KEY or key_from(PARLEY_DATA_DIR / "secret.key")
    PARLEY_FINGERPRINT_KEY = (_fingerprint_key or key_from(PARLEY_DATA_DIR / "fingerprint.key")).encode()
except OSError as error:
    env.problems.append(
        f'PARLEY_DATA_DIR is "{PARLEY_DATA_DIR}", which cannot be written ({error.strerror}):'
        " write the path of a folder that you own."
    )
except ValueError as error:
    env.problems.append(str(error))

# History

CHAT_HISTORY_ENABLED = env.flag("CHAT_HISTORY_ENABLED", True)
CHAT_HISTORY_TTL_DAYS = env.whole_number("CHAT_HISTORY_TTL_DAYS", 30)
CHAT_HISTORY_BODY_DAYS = env.whole_number("CHAT_HISTORY_BODY_DAYS", 0)
CHAT_HISTORY_MAX_MESSAGES = env.whole_number("CHAT_HISTORY_MAX_MESSAGES", 0)
CHAT_HISTORY_MAX_SESSIONS = env.whole_number("CHAT_HISTORY_MAX_SESSIONS", 0)
CHAT_HISTORY_STICKY_TTL_SECONDS = env.whole_number("CHAT_HISTORY_STICKY_TTL_SECONDS", 600)
PARLEY_CHAT_TTL_DAYS = env.whole_number("PARLEY_CHAT_TTL_DAYS", 0)
PARLEY_IMPORT_TTL_DAYS = env.whole_number("PARLEY_IMPORT_TTL_DAYS", 0)
PARLEY_IMPORT_MB = env.whole_number("PARLEY_IMPORT_MB", 512, least=1, most=102_400)
PARLEY_TRASH_HOURS = env.whole_number("PARLEY_TRASH_HOURS", 24, most=876_000)
PARLEY_REDACTION_HOOKS = env.dotted_paths("PARLEY_REDACTION_HOOKS")
PARLEY_REDACTION_PERSONAL = env.words("PARLEY_REDACTION_PERSONAL")

# The relay's journal

PARLEY_MAX_DIGEST_MB = env.whole_number("PARLEY_MAX_DIGEST_MB", 8, least=1, most=1024)
PARLEY_JOURNAL_MB = env.whole_number("PARLEY_JOURNAL_MB", 1024, least=1, most=1024 * 1024)
# How many days the files are kept that the relay puts aside; 0 is no limit.
PARLEY_ASIDE_DAYS = env.whole_number("PARLEY_ASIDE_DAYS", 30, most=36_500)
# Readers of /metrics: staff and keys with the scope admin, every client, or none.
PARLEY_METRICS = env.choice("PARLEY_METRICS", "admin", among=("admin", "open", "off"))
PARLEY_DIGESTER = env.choice("PARLEY_DIGESTER", "auto", among=("auto", "process", "thread"))

# Providers


def _service_url(name: str, *, example: str) -> str:
    address = env.url(name, schemes=_WEB, example=example).rstrip("/")
    if address and not is_address(address):
        env.refuse(name, f"write a URL like {example}, without a username, a password or a query")
    return address


def _service_key(name: str) -> str:
    key = env.text(name)
    if not is_key(key):
        env.refuse(name, "write only the key, without spaces")
    return key


OPENAI_API_KEY = _service_key("OPENAI_API_KEY")
OPENAI_BASE_URL = _service_url("OPENAI_BASE_URL", example="https://api.openai.com/v1")
ANTHROPIC_API_KEY = _service_key("ANTHROPIC_API_KEY")
ANTHROPIC_BASE_URL = _service_url("ANTHROPIC_BASE_URL", example="https://api.anthropic.com")
GEMINI_API_KEY = _service_key("GEMINI_API_KEY")
GOOGLE_GEMINI_BASE_URL = _service_url("GOOGLE_GEMINI_BASE_URL", example="https://generativelanguage.googleapis.com")
_read = partial(read_file, variables=lambda name: (env.variables.get(name) or "").strip())
PARLEY_PROVIDERS, PARLEY_ROUTES = env.file("PARLEY_PROVIDERS", ProvidersFile(), _read, base=HOME_DIR)
PARLEY_DEMO_MODEL = env.flag("PARLEY_DEMO_MODEL", True)
PARLEY_FIND_LOCAL_MODELS = env.flag("PARLEY_FIND_LOCAL_MODELS", True)
PARLEY_LOOPBACK_ONLY = env.flag("PARLEY_LOOPBACK_ONLY", False)

# The relay

PARLEY_PRICES: tuple[Price, ...] = env.file("PARLEY_PRICES", (), read_prices, base=HOME_DIR)
PARLEY_UNKNOWN_INPUT_PRICE = env.amount("PARLEY_UNKNOWN_INPUT_PRICE", Decimal(15))
PARLEY_UNKNOWN_OUTPUT_PRICE = env.amount("PARLEY_UNKNOWN_OUTPUT_PRICE", Decimal(75))
PARLEY_RELAY_RESERVED_TOKENS = env.whole_number("PARLEY_RELAY_RESERVED_TOKENS", 8_192, least=1, most=10**9)
PARLEY_RELAY_BODY_MB = env.whole_number("PARLEY_RELAY_BODY_MB", 64, least=1, most=1024)
PARLEY_RELAY_KEEPALIVE_SECONDS = env.whole_number("PARLEY_RELAY_KEEPALIVE_SECONDS", 15, most=3600)
PARLEY_RELAY_ON_DISCONNECT = env.choice("PARLEY_RELAY_ON_DISCONNECT", "abort", among=("abort", "drain"))
PARLEY_RELAY_DRAIN_SECONDS = env.whole_number("PARLEY_RELAY_DRAIN_SECONDS", 60, least=1, most=3600)
PARLEY_RELAY_STOP_SECONDS = env.whole_number("PARLEY_RELAY_STOP_SECONDS", 25, most=3600)
PARLEY_RELAY_DRAINS = env.whole_number("PARLEY_RELAY_DRAINS", 16, most=10_000)

PARLEY_OWN_KEYS = env.flag("PARLEY_OWN_KEYS", True)  # off: only staff make API keys

# Chat

# Agents may list files below these folders.
PARLEY_FOLDERS = env.folders("PARLEY_FOLDERS")
PARLEY_ATTACHMENT_MB = env.whole_number("PARLEY_ATTACHMENT_MB", 10, least=1, most=100)
PARLEY_ATTACHMENTS_PER_MESSAGE = env.whole_number("PARLEY_ATTACHMENTS_PER_MESSAGE", 10, most=100)
PARLEY_SHARING = env.flag("PARLEY_SHARING", True)
# At this share of a model's window older turns are summarised; 0: never.
PARLEY_COMPRESS_AT = env.share("PARLEY_COMPRESS_AT", 0.8)
PARLEY_COMPRESS_KEEP_TURNS = env.whole_number("PARLEY_COMPRESS_KEEP_TURNS", 0, most=1000)
# Limits per user; 0 means no limit.
PARLEY_CHAT_MESSAGES_PER_MINUTE = env.whole_number("PARLEY_CHAT_MESSAGES_PER_MINUTE", 30)
PARLEY_CHAT_TOKENS_PER_DAY = env.whole_number("PARLEY_CHAT_TOKENS_PER_DAY", 0, most=10**15)
PARLEY_CHAT_COST_PER_DAY = env.amount("PARLEY_CHAT_COST_PER_DAY", Decimal(0))

# Agents that call agents: how deep, how many in one turn, and how long each may take.
PARLEY_AGENT_DEPTH = env.whole_number("PARLEY_AGENT_DEPTH", 3, most=10)
PARLEY_AGENT_CALLS = env.whole_number("PARLEY_AGENT_CALLS", 20, most=1000)
PARLEY_AGENT_SECONDS = env.whole_number("PARLEY_AGENT_SECONDS", 900, least=1, most=86_400)

# The application

INSTALLED_APPS = [
    "project.config.admin.AdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "csp",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "project",
    "project.accounts",
    "history",
    "relay",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "project.server.static_files.CompressionMiddleware",
    "project.server.static_files.StaticFilesMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "project.accounts.middleware.PreferencesMiddleware",
    "project.accounts.middleware.SignInReturnMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "history.pages.session.OpeningMiddleware",
    "project.views.NotAllowedMiddleware",
]
ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["history.templatetags.fragments", "project.templatetags.bundles"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]

# The database

DATABASE_URL = env.url(
    "DATABASE_URL",
    f"sqlite:///{PARLEY_DATA_DIR}/parley.sqlite3",
    schemes=("sqlite", "postgres", "postgresql"),
    example="postgres://user:password@host:5432/parley, or leave it out for SQLite",
)
DATABASES: dict[str, Any] = {"default": dj_database_url.parse(DATABASE_URL, conn_health_checks=True)}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # All processes open the same file, also when they were started in different folders.
    if DATABASES["default"]["NAME"] != ":memory:":
        DATABASES["default"]["NAME"] = str(HOME_DIR / DATABASES["default"]["NAME"])
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        # A transaction that may write takes the lock at once, so its reads are never outdated.
        "transaction_mode": "IMMEDIATE",
        "init_command": (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;"
            # 16 MB instead of 4 between two checkpoints: a fifth more appends a second, and nothing less safe.
            "PRAGMA wal_autocheckpoint=4000;"
        ),
    }
else:
    # Notice a server that vanished in a failover within half a minute. Linux waits for 15 minutes, and every database
    # thread with it. `?connect_timeout=…` in the URL has precedence.
    DATABASES["default"]["OPTIONS"] = {
        "connect_timeout": 10,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 25_000,
    } | DATABASES["default"].get("OPTIONS", {})
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Redis, for several processes

REDIS_URL = env.url("REDIS_URL", schemes=("redis", "rediss", "unix"), example="redis://127.0.0.1:6379/0")
# Messages that wait for one socket. Over this number they are dropped, and the socket reads the database instead.
_CAPACITY = 10_000
CHANNEL_LAYERS: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "relay.runtime.memory_layer.LocalChannelLayer", "CONFIG": {"capacity": _CAPACITY}}
}
CACHES: dict[str, dict[str, Any]] = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
if REDIS_URL:
    _config = {"url": REDIS_URL, "capacity": _CAPACITY}
    CHANNEL_LAYERS["default"] = {"BACKEND": "relay.runtime.redis_layer.RedisChannelLayer", "CONFIG": _config}
    CACHES["default"] = {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        # A request waits no longer than this for a Redis that hangs, and continues without it.
        "OPTIONS": {"socket_timeout": 0.5, "socket_connect_timeout": 0.5},
    }

# Accounts

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "accounts:signin"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "accounts:signin"
SESSION_COOKIE_NAME = "parley_session"
CSRF_COOKIE_NAME = "parley_csrf"

# Security: behind https as soon as PARLEY_URL says so

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _served_over_https
CSRF_TRUSTED_ORIGINS = [f"{_url.scheme}://{_url.netloc}"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if _served_over_https else 0
if PARLEY_TRUSTED_PROXIES:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
    }
}

# Language and time

LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LANGUAGE_CODE = env.choice("PARLEY_LANGUAGE", "en", among=("en", "zh-hans"))
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = ["project.locale_formats"]
TIME_ZONE = env.time_zone("PARLEY_TIME_ZONE", "UTC")

# MCP servers whose tools agents use

# Opt-in: staff who can edit MCP servers could run any program as the user that Parley runs as.
PARLEY_MCP_COMMANDS = env.flag("PARLEY_MCP_COMMANDS", False)
PARLEY_MCP_RESULT_CHARS = env.whole_number("PARLEY_MCP_RESULT_CHARS", 50_000, least=1_000)

# REST

PARLEY_API_REQUESTS_PER_MINUTE = env.whole_number("PARLEY_API_REQUESTS_PER_MINUTE", 300)
# The other options of REST views are attributes of history.api.base.ApiView.
REST_FRAMEWORK = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema", "URL_FORMAT_OVERRIDE": None}
SPECTACULAR_SETTINGS = {
    "TITLE": "Parley",
    "VERSION": "1",
    "DESCRIPTION": "REST API of the chat history: sessions, messages, tool calls, search, export and import.",
    "SCHEMA_PATH_PREFIX": "/api/",
    "SORT_OPERATIONS": False,
    "PREPROCESSING_HOOKS": ["history.api.schema.drop_slash_urls"],
    "POSTPROCESSING_HOOKS": ["history.api.schema.tidy_schema"],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "SWAGGER_UI_DIST": "SIDECAR",
}

# Static files: served by WhiteNoise under any server, with hashed names once `collectstatic` (part of `serve`) has run

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = PARLEY_DATA_DIR / "static"
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "project.server.static_files.HashedWhenCollected"},
}
WHITENOISE_USE_FINDERS = True
MEDIA_ROOT = PARLEY_DATA_DIR / "media"
# On the disk of the data, because /tmp may be memory: what is sent to be imported is large.
FILE_UPLOAD_TEMP_DIR = PARLEY_DATA_DIR / "uploads"

# Logging: to stderr, one line each, secrets blotted out

PARLEY_LOG_LEVEL = env.choice("PARLEY_LOG_LEVEL", "INFO", among=("DEBUG", "INFO", "WARNING", "ERROR"))
PARLEY_LOG_FORMAT = env.choice("PARLEY_LOG_FORMAT", "text", among=("text", "json"))
_LOGGERS = ["project", "history", "relay", "django", "uvicorn", "uvicorn.error"]
_LOGGERS += ["_granian", "granian.access"]
_OUR_HANDLER = {"handlers": ["stderr"], "level": PARLEY_LOG_LEVEL, "propagate": False}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": "project.config.logging.LineFormatter"},
        "json": {"()": "project.config.logging.JsonFormatter"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": PARLEY_LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    # The servers' own loggers too: an access log would otherwise show one-time links. Uvicorn's is off, because it is
    # a tenth of the CPU time of a relayed call.
    "loggers": dict.fromkeys(_LOGGERS, _OUR_HANDLER)
    | {"uvicorn.access": {"handlers": [], "propagate": False}}
    | {"daphne": {**_OUR_HANDLER, "level": "WARNING"}}
    # Too much even at DEBUG.
    | {"django.db.backends": {"level": "INFO"}, "django.utils.autoreload": {"level": "INFO"}},
}

env.stop_if_wrong()
