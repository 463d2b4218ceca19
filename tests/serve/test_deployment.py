"""The container, the proxy and the cluster: what their files say is what runs."""

from __future__ import annotations

import ast
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpora import PATIENCE, QUIET, learned
from servers import request, started

ROOT = Path(__file__).parent.parent.parent


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and what follows them."""
    text = (ROOT / "Dockerfile").read_text()
    joined = re.sub(
        r"\\\n\s*", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    )
    found = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, rest) for name, rest in found]


def last(name: str) -> str:
    return [rest for instruction, rest in instructions() if instruction == name][-1]


def test_the_image_is_slim_and_runs_without_rights() -> None:
    assert all("slim" in rest for name, rest in instructions() if name == "FROM")
    assert last("USER").isdigit() and int(last("USER")) > 0
    copied = [
        rest.split() for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")
    ]
    assert all((ROOT / source).exists() for sources in copied for source in sources[:-1])
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert all(f"!{source}" in ignored for sources in copied for source in sources[:-1])


def test_what_the_image_starts_serves_and_is_healthy(tmp_path: Path) -> None:
    """The command of the image, with another port, another model and the keys elsewhere."""
    keys = tmp_path / "keys"
    keys.write_text("a-key-for-this-test\n")
    command = [*json.loads(last("ENTRYPOINT")), *json.loads(last("CMD"))]
    assert command[:2] == ["anyorder", "serve"] and command[-1] == "django-small"
    flags = ["--port" if word == "--port" else word.replace("/run/keys", str(keys)) for word in command[2:-1]]
    flags.pop(flags.index("--port") + 1)
    flags.remove("--port")
    with started(learned().run, *flags) as server:
        address = server.address.replace("0.0.0.0", "127.0.0.1")
        check = json.loads(re.search(r"CMD (\[.*\])", last("HEALTHCHECK"))[1])  # type: ignore[index]
        assert check[0] == "python"
        port = address.rpartition(":")[2]
        healthy = [sys.executable, *(part.replace("8000", port) for part in check[1:])]
        assert subprocess.run(healthy, timeout=PATIENCE, check=False).returncode == 0
        assert request(f"{address}/v1/models").status == 401
        reply = request(
            f"{address}/v1/models", headers={"Authorization": f"Bearer {keys.read_text().strip()}"}
        )
        assert reply.status == 200


def test_what_the_image_installs_is_what_the_package_needs() -> None:
    (install,) = [rest for name, rest in instructions() if name == "RUN" and "pip install" in rest]
    words = shlex.split(install)
    assert ".[serve]" in words and "constraints.txt" in words


def test_compose_names_files_that_are_there() -> None:
    services: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    mounted = [one.split(":")[0] for service in services.values() for one in service["volumes"]]
    assert all((ROOT / path).exists() for path in mounted if path != "./keys")
    assert services["anyorder"]["build"] == "." and services["anyorder"]["read_only"] is True
    scraped = yaml.safe_load((ROOT / "examples" / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == ["anyorder:8000"]
    assert scraped["authorization"]["credentials_file"] == "/run/keys"


@pytest.mark.skipif(shutil.which("caddy") is None, reason="needs caddy, as in Debian's package caddy")
def test_the_proxy_understands_its_file() -> None:
    done = subprocess.run(
        ["caddy", "validate", "--config", ROOT / "examples" / "Caddyfile"],
        env=QUIET,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_example_for_ray_is_short_and_uses_what_exists() -> None:
    """Ray itself is too large for these tests."""
    text = (ROOT / "examples" / "ray_serve.py").read_text()
    code = [line for line in text.splitlines() if line.strip() and not line.strip().startswith(('"""', "#"))]
    assert len(code) <= 25
    calls = {node.attr for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)}
    assert {"load", "generate", "text"} <= calls
