"""The process on a GPU machine: takes jobs from the control plane and runs them in containers.

It stands alone: it imports nothing of the server and speaks only the wire in ``fixtures/protocol/v1``.
"""

__version__ = "0.1.0"
