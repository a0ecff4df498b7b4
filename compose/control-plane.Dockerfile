# The control plane: one image, run as web, as data and as keeper. Built from the root of the checkout:
#   docker build -f compose/control-plane.Dockerfile -t openface/control-plane .
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}

# The local forge reads bare repositories with git.
RUN command -v git >/dev/null \
    || (apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*)

WORKDIR /app
COPY requirements/control-plane.txt requirements/
RUN python3 -m venv /opt/openface \
    && /opt/openface/bin/pip install --no-cache-dir --require-hashes -r requirements/control-plane.txt
COPY manage.py ./
COPY openface openface
COPY runtime_proxy runtime_proxy
COPY workers workers
COPY spaces spaces
COPY jobs jobs
COPY templates templates
COPY static static
COPY locale locale

# No account of the host has this number, and nothing in the image belongs to it but its state.
RUN mkdir /data && chown 10001:10001 /data
USER 10001:10001
ENV PATH=/opt/openface/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 OPENFACE_STATE_DIR=/data HOME=/data
VOLUME /data
EXPOSE 8090 8091
CMD ["daphne", "-b", "0.0.0.0", "-p", "8090", "openface.asgi:application"]
