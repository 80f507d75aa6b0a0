# A run folder as a service, on a CPU. Build it beside a run:
#   docker build -t reviews --build-arg RUN=runs/reviews .
#   docker run -p 8000:8000 -e FASTFORMER_API_KEY=… -v reviews-state:/state reviews
FROM python:3.12-slim

# An index with CPU builds of torch; without one pip takes the default build, which brings CUDA along.
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt ".[serve,onnx]" \
    && useradd --create-home --uid 10001 server \
    && mkdir /state && chown server /state

ARG RUN=runs/quickstart
COPY --chown=server ${RUN} /run-folder

USER 10001
VOLUME /state
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
# Inside a container it must listen on all addresses; who may ask, --api-key (FASTFORMER_API_KEY) says.
ENTRYPOINT ["fastformer", "serve", "model=/run-folder", "--host", "0.0.0.0", "--state", "/state"]
