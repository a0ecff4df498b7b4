# The worker of one GPU machine. Built from the root of the checkout:
#   docker build -f compose/gpu-worker.Dockerfile -t openface/gpu-worker .
# It drives the Docker of its host through the socket, so it needs git and a docker command line with BuildKit, but no
# CUDA: the NVIDIA toolkit brings the driver's library into the container.
ARG BASE_IMAGE=debian:trixie-slim
FROM ${BASE_IMAGE}

# A base of your own may bring them all; git-lfs is only needed for repositories that use it.
RUN command -v git >/dev/null && command -v docker >/dev/null && command -v python3 >/dev/null \
    || (apt-get update \
        && apt-get install -y --no-install-recommends \
            ca-certificates docker-buildx docker-cli git git-lfs python3 python3-venv \
        && rm -rf /var/lib/apt/lists/*)

WORKDIR /app
COPY requirements/worker.txt requirements/build.txt requirements/
RUN python3 -m venv /opt/openface \
    && /opt/openface/bin/pip install --no-cache-dir --require-hashes -r requirements/worker.txt -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY gpu_worker gpu_worker
RUN /opt/openface/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

# Inside, the gateway listens on every address of the container; what is published, and where, is compose's to say.
# OPENFACE_WORKER_CONTAINER: after a final answer (revoked) wait instead of exiting, or the engine starts it again.
ENV PATH=/opt/openface/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/data \
    WORKER_DATA_DIR=/data GPU_WORKER_BIND_ADDRESS=0.0.0.0 OPENFACE_WORKER_CONTAINER=1
VOLUME /data
EXPOSE 8787
ENTRYPOINT ["openface-gpu-worker"]
CMD ["run"]
