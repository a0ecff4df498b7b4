"""The public variables that every app finds: where it lives, so that it can write links that work there.

One block that harms none of the frameworks it was tried with (Gradio, Streamlit, FastAPI, Dash, Chainlit, Express, …).
The worker adds what only it knows: PORT, and the GPU variables, which nothing here may set.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from spaces.models import Space
from spaces.origin import runtime_origin


def app_environment(space: Space, *, title: str, port: int, keep_prefix: bool) -> dict[str, str]:
    """Return the variables of one start. `port`: where the app should listen inside its container."""
    base = space.run_path
    origin = runtime_origin(space)
    return {
        "OPENFACE_BASE_PATH": base,
        "PUBLIC_URL": f"{origin}{base}",
        "FORWARDED_ALLOW_IPS": "*",  # only the worker's gateway reaches the app
        **(_prefix_kept(base) if keep_prefix else _prefix_stripped(base)),
        **_listening(port),
        # The names that Hugging Face gives, for apps that were written there.
        "SPACE_ID": f"{space.owner}/{space.name}",
        "SPACE_AUTHOR_NAME": space.owner,
        "SPACE_REPO_NAME": space.name,
        "SPACE_TITLE": title or space.name,
        "SPACE_HOST": urlsplit(origin).netloc,
    }


def _prefix_stripped(base: str) -> dict[str, str]:
    """The app sees paths from '/', and writes links from `base`."""
    return {
        "GRADIO_ROOT_PATH": base,
        "UVICORN_ROOT_PATH": base,
        "CHAINLIT_PARENT_ROOT_PATH": base,
        "DASH_REQUESTS_PATHNAME_PREFIX": f"{base}/",
        "DASH_ROUTES_PATHNAME_PREFIX": "/",
    }


def _prefix_kept(base: str) -> dict[str, str]:
    """The app sees paths from `base`. Uvicorn and Gradio would add a root path to it once more: nothing for them."""
    return {
        "CHAINLIT_ROOT_PATH": base,
        "DASH_URL_BASE_PATHNAME": f"{base}/",
    }


def _listening(port: int) -> dict[str, str]:
    """Frameworks that listen on loopback, or on a port of their own, unless told."""
    return {
        "HOST": "0.0.0.0",
        "GRADIO_SERVER_NAME": "0.0.0.0",
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "STREAMLIT_SERVER_ADDRESS": "0.0.0.0",
        "STREAMLIT_SERVER_PORT": str(port),
        "STREAMLIT_SERVER_HEADLESS": "true",
        "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false",
    }
