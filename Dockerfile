# syntax=docker/dockerfile:1
# model-pool with its embedded engine on the CPU. docs/start/install.md says how to run it, and how to add other engines.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# For `model-pool version`: the clone's history is not part of the context.
ARG MODEL_POOL_COMMIT=
# Downloads and compiled dependencies stay between builds.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked -p model-pool -p admin-client && \
    install -D -t /out target/release/model-pool target/release/admin-client

FROM debian:bookworm-slim
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates tini && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/model-pool --shell /usr/sbin/nologin model-pool && \
    install -d -o model-pool -g model-pool -m 0750 /var/lib/model-pool /models && \
    install -d /etc/model-pool/models
COPY --from=build /out/ /usr/local/bin/
COPY deploy/model-pool.yaml model_reference.json /etc/model-pool/
COPY deploy/models/README /etc/model-pool/models/
COPY LICENSE-APACHE LICENSE-MIT /usr/share/doc/model-pool/

# Any configuration key can be set like this: docs/reference/configuration.md. A container is reached over its network, never over
# its loopback, so every request from outside needs a key unless auth.inference is open.
ENV MODEL_POOL__SERVER__LISTEN=0.0.0.0:8080 \
    MODEL_POOL__SOURCES__CACHE_DIR=/models \
    MODEL_POOL_ADMIN_KEY_FILE=/var/lib/model-pool/data/admin.key \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

USER 10001:10001
WORKDIR /var/lib/model-pool
# State and keys; fetched weights. Model files are mounted at /etc/model-pool/models.
VOLUME ["/var/lib/model-pool", "/models"]
EXPOSE 8080

# The pool has no command for this, and the image no curl: bash can open the connection itself. Replace it where the
# port, server.base_path or server.tls differ.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /llm/health HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [[ $status == 200 ]]"]

# tini takes in what engines leave behind. SIGTERM drains and stops every engine: give it time (docker stop -t 900).
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/model-pool"]
CMD ["serve", "--config", "/etc/model-pool/model-pool.yaml"]
