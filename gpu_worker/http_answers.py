"""What an HTTP answer of the control plane says, and how a request proves who asks: for every client of this worker."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import requests
from requests.auth import AuthBase

from gpu_worker.errors import WireError

LONGEST_RETRY_AFTER_SECONDS = 30.0


class Bearer(AuthBase):
    """Sets a token. As an auth object, not a header: requests lets a ~/.netrc override a plain header."""

    def __init__(self, credential: str | None) -> None:
        self._credential = credential

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._credential:
            request.headers["Authorization"] = f"Bearer {self._credential}"
        return request


def is_loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def json_of(response: requests.Response) -> object:
    """The body. Raises WireError."""
    try:
        return response.json()
    except ValueError as problem:
        raise WireError(f"the answer to {response.request.method} {response.url} is not JSON") from problem


def error_body(response: requests.Response) -> dict[str, object]:
    """The body of an error, empty where it is none of ours."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def sentence_of(response: requests.Response) -> str:
    """What an answer that is no success says, in a sentence."""
    if response.is_redirect:
        return (
            f"The control plane redirects to {response.headers.get('Location')}; set OPENFACE_URL to its final address."
        )
    detail = error_body(response).get("detail")
    return f"HTTP {response.status_code}" + (f": {detail}" if isinstance(detail, str) else "")


def retry_after(response: requests.Response) -> float:
    """Seconds to wait before the next try; 0 where the answer does not say."""
    try:
        return min(float(response.headers.get("Retry-After", "0")), LONGEST_RETRY_AFTER_SECONDS)
    except ValueError:
        return 0.0


def explain(problem: requests.RequestException) -> str:
    """A sentence without the object addresses that requests puts into its own."""
    if isinstance(problem, requests.exceptions.SSLError):
        return f"TLS: {problem}"
    if isinstance(problem, requests.Timeout):
        return "the control plane did not answer in time"
    cause: BaseException = problem
    while cause.__context__ is not None:
        cause = cause.__context__
    return str(cause) or type(problem).__name__
