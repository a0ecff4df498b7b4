"""Who may show a Space in a frame: the portal and the Space itself, whatever the app says. Pure.

`X-Frame-Options` cannot name the portal, so it gives way to `frame-ancestors`. An app's own `frame-ancestors` stays,
with the portal added: JupyterLab's `'self'` would leave the portal's page blank.
"""

from __future__ import annotations

from functools import lru_cache

FRAME_OPTIONS = b"x-frame-options"
POLICY = b"content-security-policy"

_DIRECTIVE = b"frame-ancestors"
_NONE = b"'none'"
LONGEST_KEPT_LINE = 2048  # bytes; an app shall not fill our memory with policies that differ


@lru_cache(maxsize=64)
def own_policy(portal: bytes) -> bytes:
    """Return the policy that every answer carries besides the app's own: browsers obey all of them."""
    return b" ".join([_DIRECTIVE, b"'self'", portal]) if portal else _DIRECTIVE + b" 'self'"


def admitting(line: bytes, portal: bytes) -> bytes:
    """Return a Content-Security-Policy line of the app with the portal among the allowed ancestors.

    One line may hold several policies (separated by commas), and each of them counts. All else stays byte for byte.
    """
    return (_admitting if len(line) <= LONGEST_KEPT_LINE else _newly_admitting)(line, portal)


def _newly_admitting(line: bytes, portal: bytes) -> bytes:
    if not portal or _DIRECTIVE not in line.lower():
        return line
    return b",".join([_policy_admitting(policy, portal) for policy in line.split(b",")])


_admitting = lru_cache(maxsize=1024)(_newly_admitting)


def _policy_admitting(policy: bytes, portal: bytes) -> bytes:
    return b";".join([_directive_admitting(directive, portal) for directive in policy.split(b";")])


def _directive_admitting(directive: bytes, portal: bytes) -> bytes:
    name, *sources = directive.split() or [b""]
    if name.lower() != _DIRECTIVE:
        return directive
    # 'none' means nothing beside another source; a directive without any source is 'none' too.
    kept = [source for source in sources if source.lower() != _NONE]
    before = directive[: len(directive) - len(directive.lstrip())]
    return before + b" ".join([name, *kept, portal])
