# The operator, for whoever has Docker:   docker build -t elasticjob/operator:0.1.0 .
# with --build-arg COMMIT=$(git rev-parse HEAD) for `elasticjob version`
# and Brain:   docker build --build-arg PROGRAM=brain -t elasticjob/brain:0.1.0 .
# hack/images builds the same without Docker.
ARG PYTHON=3.11-slim-bookworm
FROM python:${PYTHON} AS build
ARG PROGRAM=operator
ARG COMMIT=unknown
ENV ELASTICJOB_COMMIT=${COMMIT}
WORKDIR /src
COPY . .
RUN python -m venv /opt/elasticjob \
 && /opt/elasticjob/bin/pip install --no-cache-dir ".[${PROGRAM}]"

FROM python:${PYTHON}
COPY --from=build /opt/elasticjob /opt/elasticjob
ENV PATH=/opt/elasticjob/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG PROGRAM=operator
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="elasticjob ${PROGRAM}" \
      org.opencontainers.image.licenses=Apache-2.0 \
      org.opencontainers.image.vendor="The elasticjob authors" \
      org.opencontainers.image.revision=${COMMIT}
USER 65532:65532
ENTRYPOINT ["elasticjob"]
CMD ["operator"]
