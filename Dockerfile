# The interpreter that the tests run with. PYTHON_DIGEST, as in sha256:…, names the very image:
# docker build --build-arg PYTHON_DIGEST=sha256:… .
ARG PYTHON_VERSION=3.11
ARG PYTHON_DIGEST

FROM python:${PYTHON_VERSION}-slim${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS build
WORKDIR /src
# dependencies first: they change less often than the code, and their layer is kept
COPY requirements requirements
RUN python -m venv /opt/proreus \
    && /opt/proreus/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/runtime.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY deploy deploy
COPY examples examples
COPY src src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/proreus/bin/pip install --no-cache-dir --no-index --no-deps /wheels/proreus-*.whl \
    && /opt/proreus/bin/pip uninstall --yes setuptools pip

FROM python:${PYTHON_VERSION}-slim${PYTHON_DIGEST:+@${PYTHON_DIGEST}}
LABEL org.opencontainers.image.title="proreus" \
      org.opencontainers.image.description="A kube-scheduler replacement in Python" \
      org.opencontainers.image.licenses="Apache-2.0"
# Memory goes back to the system by the page, where Python's own allocator keeps a megabyte for each
# small object in it (docs/adr/0014-jemalloc.md). Not pinned: Debian keeps only its newest version.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libjemalloc2 \
    && rm -rf /var/lib/apt/lists/*
ENV LD_PRELOAD=libjemalloc.so.2 \
    PYTHONMALLOC=malloc \
    MALLOC_CONF=background_thread:true,narenas:1,dirty_decay_ms:1000,muzzy_decay_ms:0,slab_sizes:64-64:2,tcache_nslots_small_max:16
COPY --from=build /opt/proreus /opt/proreus
# the root file system is read-only where it runs: nothing is compiled or written there; the user has
# no entry in /etc/passwd, which not every engine makes a HOME for
ENV HOME=/ \
    PATH=/opt/proreus/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["proreus"]
CMD ["run"]
