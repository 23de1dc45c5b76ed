# The interpreter that the tests run with.
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim AS build
WORKDIR /src
# dependencies first: they change less often than the code, and their layer is kept
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src/proreus/__init__.py src/proreus/__init__.py
RUN python -m venv /opt/proreus \
    && /opt/proreus/bin/pip install --no-cache-dir -c constraints.txt .
COPY src src
RUN /opt/proreus/bin/pip install --no-cache-dir --no-deps --force-reinstall . \
    && /opt/proreus/bin/pip uninstall --yes pip

FROM python:${PYTHON_VERSION}-slim
LABEL org.opencontainers.image.title="proreus" \
      org.opencontainers.image.description="A kube-scheduler replacement in Python" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/proreus /opt/proreus
# the root file system is read-only where it runs: nothing is compiled or written there
ENV PATH=/opt/proreus/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 10259
ENTRYPOINT ["proreus"]
CMD ["run"]
