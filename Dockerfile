# modegraph in a container, as an unprivileged user. Two targets:
#   docker build --target cpu  -t modegraph:cpu .    search on the CPU; a model through openai:NAME@URL or hf:PATH
#   docker build --target cuda -t modegraph:cuda .   the same on CUDA, and vLLM (vllm:PATH)
# No secret is built in: the container reads the key from the variable MODEGRAPH_API_KEY when it starts (docs/deploy.md).

FROM python:3.12-slim-bookworm AS source
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/modegraph
ENV PATH=/opt/modegraph/bin:$PATH
WORKDIR /src
COPY . .

FROM source AS cpu-build
RUN pip install --index-url https://download.pytorch.org/whl/cpu torch==2.13.0
RUN pip install --constraint constraints.txt '.[serve,offline,fast]' 'psycopg[binary]'

FROM source AS cuda-build
# Without the constraints: vLLM itself pins many of the same packages.
RUN pip install '.[serve,offline,fast,gpu-serve]' 'psycopg[binary]>=3.3'

FROM python:3.12-slim-bookworm AS runtime
ENV PATH=/opt/modegraph/bin:$PATH PYTHONUNBUFFERED=1 HF_HOME=/var/lib/modegraph/huggingface
RUN useradd --system --uid 10001 --user-group --create-home --home-dir /var/lib/modegraph --shell /usr/sbin/nologin modegraph \
    && install --directory --owner modegraph --group modegraph /index
WORKDIR /var/lib/modegraph
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=180s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/health', timeout=4)"]
ENTRYPOINT ["modegraph"]
CMD ["serve", "--help"]

FROM runtime AS cuda
# vLLM compiles small C files when it starts.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from=cuda-build /opt/modegraph /opt/modegraph
USER modegraph

FROM runtime AS cpu
COPY --from=cpu-build /opt/modegraph /opt/modegraph
USER modegraph
