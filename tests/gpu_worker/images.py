"""Images without a registry: FROM scratch and the host's static busybox."""

from __future__ import annotations

from pathlib import Path

BUSYBOX = Path("/bin/busybox")

DOCKERFILE = """\
FROM scratch
COPY busybox /bin/busybox
COPY index.html /www/index.html
RUN ["/bin/busybox", "--install", "-s", "/bin"]
ENV NVIDIA_VISIBLE_DEVICES=all
EXPOSE 7860
CMD ["sh", "-c", "echo serving; exec busybox httpd -f -v -p 0.0.0.0:7860 -h /www"]
"""


def container_files(**changes: str) -> dict[str, str | bytes]:
    """A Space that serves one page from busybox; *changes* replace files (``Dockerfile``, …)."""
    return {
        "Dockerfile": DOCKERFILE,
        "index.html": "hello from a container",
        # Tests are collected on machines without an engine too, which need no busybox either.
        "busybox": BUSYBOX.read_bytes() if BUSYBOX.exists() else b"",
        **changes,
    }
