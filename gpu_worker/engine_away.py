"""A container engine that does not answer, as the owner of the machine is told it: where it was looked for, and what
helps. Who only has a Space here is not told where that is.
"""

from __future__ import annotations

from gpu_worker.engine_address import engine_address
from gpu_worker.errors import EngineSilent
from gpu_worker.reasons import reason_of

REMEDY = (
    "Start Docker, and let this user reach its socket (group docker). Where it is elsewhere: DOCKER_HOST, or "
    "DOCKER_CONTEXT."
)


def what_is_wrong(problem: EngineSilent) -> str:
    """Within a sentence, without its end."""
    try:
        address = engine_address()
    except EngineSilent as wrong:
        return str(wrong)  # there is no such address, and it says so itself
    return f"the container engine at {address} does not answer: {reason_of(problem)}"


def sentence(problem: EngineSilent) -> str:
    """With what helps."""
    wrong = what_is_wrong(problem).rstrip(".")
    return f"{wrong[0].upper()}{wrong[1:]}. {REMEDY}"
