"""Jobs as containers: the only part of the worker that imports ``docker``.

Everything made here carries our labels, and nothing without them is ever touched. One network per job, no published
port, no host mount, no socket, no capability; only the worker restarts anything.

``engine`` starts and finds containers, ``runtime`` is one of them, ``networks`` their networks, ``connection`` the way
to the engine and what its errors mean, ``labels`` how we know what is ours.
"""

from gpu_worker.containers.engine import ContainerEngine

__all__ = ["ContainerEngine"]
