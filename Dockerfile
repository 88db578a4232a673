# headrace in a container: wheels, then an environment of them, then a slim image with only that in it.
#
#   docker build -t headrace .                                          ONNX Runtime on the CPU
#   docker build -t headrace:tensorrt --build-arg ENGINE=tensorrt .     TensorRT plans on an NVIDIA GPU
#
# Both stand on plain Debian: the CUDA runtime comes inside the Python wheels, and the driver from the host
# (NVIDIA Container Toolkit).
ARG DEBIAN=bookworm-slim

FROM debian:${DEBIAN} AS python
# Debian's own updates are wanted, so versions are not pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates python3 \
    && rm -rf /var/lib/apt/lists/*

FROM python AS wheels
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-pip python3-venv \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY constraints.txt ./
COPY proto proto
COPY server server
COPY client client
RUN pip wheel --no-deps --wheel-dir /wheels ./proto ./server ./client

FROM wheels AS environment
ARG ENGINE=cpu
# Without pip inside: what runs in production cannot install anything.
RUN case "$ENGINE" in \
        cpu) extras=onnxruntime,native ;; \
        tensorrt) extras=tensorrt,native ;; \
        *) echo "ENGINE is '$ENGINE', but must be cpu or tensorrt" >&2; exit 1 ;; \
    esac \
    && python3 -m venv --without-pip /opt/headrace \
    && pip --python /opt/headrace/bin/python install --constraint constraints.txt /wheels/headrace_proto-*.whl \
        /wheels/headrace_client-*.whl "$(echo /wheels/headrace_server-*.whl)[$extras]"

FROM python AS headrace
LABEL org.opencontainers.image.title="headrace" \
      org.opencontainers.image.description="gRPC inference that keeps every CUDA stream full" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin headrace
COPY --from=environment /opt/headrace /opt/headrace
# The two NVIDIA_ variables ask the container toolkit for the driver; without it they mean nothing.
ENV PATH=/opt/headrace/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /models
EXPOSE 8001 8002
STOPSIGNAL SIGTERM
# By a shell, so that it follows the port that the operator sets.
# hadolint ignore=DL3025
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD headrace-client health --url "127.0.0.1:${HEADRACE_GRPC_PORT:-8001}"
ENTRYPOINT ["headrace"]
CMD ["serve", "--model-repository", "/models"]
