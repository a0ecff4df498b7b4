"""Settings, from the environment. Every secret can also be given as a file: NAME_FILE names it.

No default here is unsafe: a missing key is reported in a sentence by a system check (`openface/checks.py`).
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from urllib.parse import urlsplit

import django_stubs_ext
import environ

# Lets `ModelAdmin[Space]` and its like be written: the types are checked, at run time they mean nothing.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

# All that an installation keeps on this machine, unless other settings say otherwise.
OPENFACE_STATE_DIR = Path(env.str("OPENFACE_STATE_DIR", default=str(BASE_DIR / ".openface")))


def secret(name: str, default: str = "") -> str:
    """Return NAME, or what the file that NAME_FILE names holds, or the key that `manage.py up` made, or the default."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        return Path(path).read_text(encoding="utf-8").strip()
    made = OPENFACE_STATE_DIR / "keys" / name.lower()
    if name not in os.environ and made.exists():
        return made.read_text(encoding="utf-8").strip()
    return str(env.str(name, default=default))


def listed(name: str) -> list[str]:
    return [item.strip() for item in str(env.str(name, default="")).split(",") if item.strip()]


# --- where things live ---------------------------------------------------------------------------------------------
OPENFACE_REPOSITORIES_DIR = Path(env.str("OPENFACE_REPOSITORIES_DIR", default=str(OPENFACE_STATE_DIR / "repositories")))

# --- keys ----------------------------------------------------------------------------------------------------------
DEBUG = env.bool("OPENFACE_DEBUG", default=False)
SECRET_KEY = secret("SECRET_KEY", default="")
# "id:hex" pairs, newest first. Tokens of a lease are derived from the key whose id the lease remembers.
OPENFACE_LEASE_KEYS = [key.strip() for key in secret("OPENFACE_LEASE_KEYS").split(",") if key.strip()]
OPENFACE_ENCRYPTION_KEYS = [key.strip() for key in secret("OPENFACE_ENCRYPTION_KEYS").split(",") if key.strip()]

# --- addresses -----------------------------------------------------------------------------------------------------
PUBLIC_BASE_URL = env.str("PUBLIC_BASE_URL", default="http://localhost:8090").rstrip("/")
_public = urlsplit(PUBLIC_BASE_URL)
# Where /run is served: another origin than the portal's, because Space pages are untrusted code.
OPENFACE_RUNTIME_ORIGIN = env.str(
    "OPENFACE_RUNTIME_ORIGIN", default=f"{_public.scheme}://{_public.hostname}:{(_public.port or 8090) + 1}"
).rstrip("/")
# What workers use for git and artifacts. Empty: the host they called us by, with the data plane's port.
OPENFACE_DATA_URL = env.str("OPENFACE_DATA_URL", default="").rstrip("/")
OPENFACE_DATA_PORT = env.int("OPENFACE_DATA_PORT", default=(_public.port or 8090) + 1)
ALLOWED_HOSTS = listed("OPENFACE_ALLOWED_HOSTS") or [
    "localhost",
    "127.0.0.1",
    "[::1]",
    _public.hostname or "localhost",
    urlsplit(OPENFACE_RUNTIME_ORIGIN).hostname or "localhost",
]
CSRF_TRUSTED_ORIGINS = [PUBLIC_BASE_URL]
OPENFACE_TRUSTED_PROXIES = listed("OPENFACE_TRUSTED_PROXIES")
OPENFACE_GPU_WORKER_NETWORKS = listed("OPENFACE_GPU_WORKER_NETWORKS")

# --- fleet ---------------------------------------------------------------------------------------------------------
OPENFACE_GPU_WORKERS_ENABLED = env.bool("OPENFACE_GPU_WORKERS_ENABLED", default=False)
OPENFACE_ALLOW_SIMULATED_GPUS = env.bool("OPENFACE_ALLOW_SIMULATED_GPUS", default=False)
OPENFACE_GPU_WORKER_LEASE_SECONDS = env.float("OPENFACE_GPU_WORKER_LEASE_SECONDS", default=90)
OPENFACE_GPU_WORKER_STALE_SECONDS = env.float("OPENFACE_GPU_WORKER_STALE_SECONDS", default=120)
OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS = env.float("OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS", default=15)
OPENFACE_GPU_WORKER_POLL_SECONDS = env.float("OPENFACE_GPU_WORKER_POLL_SECONDS", default=15)
OPENFACE_STOP_AFTER_DISCONNECT_SECONDS = env.float("OPENFACE_STOP_AFTER_DISCONNECT_SECONDS", default=0)  # 0: off
OPENFACE_STOP_GRACE_SECONDS = env.float("OPENFACE_STOP_GRACE_SECONDS", default=10)
# After so long in the line, a GPU job is no longer passed by younger ones that need less (`jobs.patience`).
OPENFACE_PATIENCE_SECONDS = env.float("OPENFACE_PATIENCE_SECONDS", default=600)
# For so long at a time, and three times as long not; 0: it is passed for ever.
OPENFACE_KEEP_SECONDS = env.float("OPENFACE_KEEP_SECONDS", default=3600)
OPENFACE_VRAM_MARGIN_MIB = env.int("OPENFACE_VRAM_MARGIN_MIB", default=512)  # of each shared GPU, promised to nobody
OPENFACE_KEEPER_SECONDS = env.float("OPENFACE_KEEPER_SECONDS", default=2)
OPENFACE_ALIVE_SECONDS = env.float("OPENFACE_ALIVE_SECONDS", default=5)  # how often web processes stamp alive_at
# Per worker and process; races and benches run above them.
OPENFACE_WORKER_RATE = env.str("OPENFACE_WORKER_RATE", default="30/60")  # calls per second / burst
OPENFACE_HEARTBEAT_RATE = env.str("OPENFACE_HEARTBEAT_RATE", default="5/20")
OPENFACE_ENROLL_PER_MINUTE = env.int("OPENFACE_ENROLL_PER_MINUTE", default=10)
OPENFACE_LOG_STREAM_MAX_BYTES = env.int("OPENFACE_LOG_STREAM_MAX_BYTES", default=16 * 1024 * 1024)

# --- apps behind /run: requests, WebSockets and connections at once, per process of the data plane; 0: no limit ---
OPENFACE_RUN_MAX_PER_VISITOR = env.int("OPENFACE_RUN_MAX_PER_VISITOR", default=512)  # or per address of who is nobody
OPENFACE_RUN_MAX_PER_SPACE = env.int("OPENFACE_RUN_MAX_PER_SPACE", default=4096)
# Idle ones too. Twice the requests of a visitor; an address never has more than a quarter of the process's open files.
OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS = env.int("OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS", default=1024)

# --- batch jobs ----------------------------------------------------------------------------------------------------
# The longest that one may compute; its README may ask for less. 0: no limit.
OPENFACE_BATCH_TIME_LIMIT_SECONDS = env.int("OPENFACE_BATCH_TIME_LIMIT_SECONDS", default=24 * 3600)
# Their results. The data plane writes them and the keeper prunes them: both need the directory.
OPENFACE_ARTIFACTS_DIR = Path(env.str("OPENFACE_ARTIFACTS_DIR", default=str(OPENFACE_STATE_DIR / "artifacts")))
OPENFACE_ARTIFACT_FILE_MAX_BYTES = env.int("OPENFACE_ARTIFACT_FILE_MAX_BYTES", default=5 * 1024**3)
OPENFACE_ARTIFACT_JOB_MAX_BYTES = env.int("OPENFACE_ARTIFACT_JOB_MAX_BYTES", default=20 * 1024**3)
OPENFACE_ARTIFACT_JOB_MAX_FILES = env.int("OPENFACE_ARTIFACT_JOB_MAX_FILES", default=10_000)
OPENFACE_ARTIFACT_KEEP_DAYS = env.float("OPENFACE_ARTIFACT_KEEP_DAYS", default=90)  # 0: for ever
OPENFACE_ARTIFACT_DISK_FLOOR_MIB = env.int("OPENFACE_ARTIFACT_DISK_FLOOR_MIB", default=1024)  # kept free of results

# --- database ------------------------------------------------------------------------------------------------------
EMBEDDED_DATABASE_URL_FILE = OPENFACE_STATE_DIR / "postgres" / "url"
DATABASE_URL = secret("DATABASE_URL")
OPENFACE_DATABASE_EMBEDDED = not DATABASE_URL
if OPENFACE_DATABASE_EMBEDDED and EMBEDDED_DATABASE_URL_FILE.exists():
    DATABASE_URL = EMBEDDED_DATABASE_URL_FILE.read_text(encoding="utf-8").strip()
# Without a database yet, name one that cannot be reached: the check says what to do.
DATABASES = {"default": environ.Env.db_url_config(DATABASE_URL or "postgres://openface@127.0.0.1:1/openface_metrics")}
DATABASES["default"]["CONN_MAX_AGE"] = 0  # kept connections leak under ASGI; the pool below keeps them instead
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"].setdefault("OPTIONS", {})
if env.bool("OPENFACE_DATABASE_POOL", default=False):  # the servers' entry points turn it on
    DATABASES["default"]["OPTIONS"]["pool"] = {
        "min_size": 2,
        "max_size": env.int("OPENFACE_DATABASE_POOL_MAX", default=16),
        "timeout": 5,
    }
# LISTEN needs a connection of its own, past any pooler.
OPENFACE_DIRECT_DATABASE_URL = secret("OPENFACE_DIRECT_DATABASE_URL") or DATABASE_URL

# --- Django --------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "openface",
    "runtime_proxy",
    "workers",
    "spaces",
    "jobs",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "openface.security_headers.SecurityHeadersMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "openface.urls"
ASGI_APPLICATION = "openface.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "openface.context.portal",
            ],
        },
    },
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/"
APPEND_SLASH = True

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ja", "日本語")]
LOCALE_PATHS = [BASE_DIR / "locale"]
TIME_ZONE = env.str("TZ", default="UTC") or "UTC"
USE_I18N = True
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = env.str("OPENFACE_STATIC_ROOT", default=str(BASE_DIR / "staticfiles"))
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True  # no collectstatic step is needed to look at a page
warnings.filterwarnings("ignore", message="No directory at: .*staticfiles", category=UserWarning)
WHITENOISE_AUTOREFRESH = DEBUG

# --- browsers ------------------------------------------------------------------------------------------------------
_tls = _public.scheme == "https"
# Cookies ignore ports, so the names say whose they are; over TLS the prefixes pin them to this host, and (`Http-`) no
# script can make one. A browser that does not know that takes the whole for `__Host-`.
SESSION_ENGINE = "openface.sessions"
SESSION_COOKIE_NAME = "__Host-Http-openface_session" if _tls else "openface_session"
CSRF_COOKIE_NAME = "__Host-openface_csrf" if _tls else "openface_csrf"
LANGUAGE_COOKIE_NAME = "openface_language"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _tls
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_USE_SESSIONS = True  # a page on the runtime origin may read non-HttpOnly cookies of this host
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"  # its cookie would not be named as ours
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Cookies that never travel to a Space and that no Space may set.
OPENFACE_PLATFORM_COOKIE_PREFIXES = (
    "openface_",
    "__Secure-openface_",
    "__Host-openface_",
    "__Http-openface_",
    "__Host-Http-openface_",
)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "OpenFace Remote GPU: worker protocol",
    "DESCRIPTION": "Version 1. Unknown fields are ignored on both sides; a missing optional field means not known.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "openface.log_lines.Formatter", "fmt": "%(asctime)s %(levelname)s %(name)s: %(message)s"}
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    # A page that is not there, or not yours, is no event for operators.
    "loggers": {
        "django.request": {"level": "ERROR"},
        "daphne": {"level": "WARNING"},  # who starts it says where it listens
    },
    "root": {"handlers": ["console"], "level": env.str("OPENFACE_LOG_LEVEL", default="INFO")},
}
