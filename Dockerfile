# A server of one model: docker build -t anyorder . && docker run -p 8000:8000 -v ./keys:/run/keys:ro anyorder
FROM python:3.11-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/anyorder \
    && /opt/anyorder/bin/pip install --no-cache-dir --constraint constraints.txt \
       --extra-index-url https://download.pytorch.org/whl/cpu '.[serve]'

FROM python:3.11-slim
COPY --from=build /opt/anyorder /opt/anyorder
RUN useradd --system --create-home --uid 10001 anyorder
USER 10001
ENV PATH=/opt/anyorder/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=15s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
# Other machines are served only with a key: /run/keys holds one a line.
ENTRYPOINT ["anyorder", "serve", "--host", "0.0.0.0", "--port", "8000", "--api-key-file", "/run/keys", "--log-format", "json"]
CMD ["django-small"]
