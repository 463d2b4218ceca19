"""The description of the server's interface: for programs as OpenAPI, and as a page for people."""

from __future__ import annotations

import html
import json
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from anyorder.inference.answers import Completed, Generated
from anyorder.inference.scoring import MarginalScore, TargetScore
from anyorder.inference.watching import WatchedStep
from anyorder.serve.bounds import Bounds
from anyorder.serve.schema import CompleteRequest, ErrorAnswer, GenerateRequest, ScoreRequest
from anyorder.version import __version__

REFERENCE = "#/components/schemas/{model}"
JSON = "application/json"
REFUSALS = {
    "401": "the key is missing or wrong",
    "403": "without a key only this machine is answered",
    "404": "no such model",
    "408": "the answer took longer than its deadline",
    "413": "the body is too large",
    "415": "the body is not declared as JSON",
    "422": "something about the request is wrong, or asks for too much",
    "503": "the queue is full; Retry-After says when to try again",
}
EXAMPLES: dict[str, dict[str, Any]] = {
    "/v1/generate": {"source": "return the length of soup .", "beam": 5},
    "/v1/complete": {"source": "if kettle is an instance of Copper ,", "must": ["not"], "beam": 5},
    "/v1/score": {"source": "x is None .", "target": "x = None"},
}
WRITES: dict[str, tuple[type[BaseModel], str, str]] = {
    "/v1/generate": (GenerateRequest, "Write the answer to a source, or to several.", "Generated"),
    "/v1/complete": (CompleteRequest, "Write around what is given of the target.", "Completed"),
    "/v1/score": (ScoreRequest, "log p of a target given its source.", "Score"),
}
READS = {
    "/v1/models": ("The models of this server, and what they can do.", JSON),
    "/metrics": ("Counts and times, for Prometheus.", "text/plain"),
    "/health": ("Whether the server is up.", JSON),
}


@cache
def openapi(bounds: Bounds, *, needs_key: bool) -> dict[str, Any]:
    """The OpenAPI description."""
    schemas = _schemas()
    for name, most in (("source", bounds.max_characters), ("target", bounds.max_characters)):
        for kind in ("GenerateRequest", "CompleteRequest", "ScoreRequest"):
            if name in schemas[kind]["properties"]:
                schemas[kind]["properties"][name]["maxLength"] = most
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "anyorder",
            "version": __version__,
            "description": "Sequence models that write their words in any order, by insertion.",
        },
        "paths": {path: {"post": _posted(path)} for path in WRITES}
        | {path: {"get": _read(path)} for path in READS},
        "components": {"schemas": schemas},
    }
    if needs_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _schemas() -> dict[str, Any]:
    models: list[type[BaseModel]] = [
        GenerateRequest,
        CompleteRequest,
        ScoreRequest,
        ErrorAnswer,
        Generated,
        Completed,
    ]
    _, made = models_json_schema(
        [(model, "serialization" if model in (Generated, Completed) else "validation") for model in models],
        ref_template=REFERENCE,
    )
    schemas: dict[str, Any] = made["$defs"]
    others: dict[str, TypeAdapter[Any]] = {
        "Score": TypeAdapter(TargetScore | MarginalScore),
        "Step": TypeAdapter(WatchedStep),
    }
    for name, adapter in others.items():
        schema = adapter.json_schema(ref_template=REFERENCE, mode="serialization")
        schemas |= schema.pop("$defs", {})
        schemas[name] = schema
    schemas["Several"] = {
        "type": "object",
        "properties": {"answers": {"type": "array", "items": _reference("Generated")}},
        "required": ["answers"],
    }
    return schemas


def _reference(name: str) -> dict[str, str]:
    return {"$ref": REFERENCE.format(model=name)}


def _posted(path: str) -> dict[str, Any]:
    request, meaning, answer = WRITES[path]
    answers = [answer, "Several"] if path == "/v1/generate" else [answer]
    content: dict[str, Any] = {JSON: {"schema": {"anyOf": [_reference(name) for name in answers]}}}
    if answer != "Score":
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "summary": meaning,
        "operationId": path.rpartition("/")[2],
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": _reference(request.__name__), "example": EXAMPLES[path]}},
        },
        "responses": {
            "200": {"description": "the answer", "content": content},
            **{
                status: {
                    "description": why,
                    "content": {JSON: {"schema": _reference("ErrorAnswer")}},
                }
                for status, why in REFUSALS.items()
            },
        },
    }


def _read(path: str) -> dict[str, Any]:
    meaning, kind = READS[path]
    return {
        "summary": meaning,
        "operationId": path.rpartition("/")[2],
        "responses": {
            "200": {"description": "what there is", "content": {kind: {}}},
            **{
                status: {
                    "description": REFUSALS[status],
                    "content": {JSON: {"schema": _reference("ErrorAnswer")}},
                }
                for status in ("401", "403")
            },
        },
    }


# --- the page ---

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --quiet: #5f5f6b; --link: #4f46e5; }
@media (prefers-color-scheme: dark) { :root { --quiet: #a9a9b6; --link: #9793fd; } }
a { color: var(--link); }
html { background: #fff; color: #1c1c22; }
@media (prefers-color-scheme: dark) { html { background: #131317; color: #ececf1; } }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 960px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 28px; letter-spacing: -.02em; } h2 { margin-top: 40px; font-size: 20px; }
code, pre { font: 14px/1.5 ui-monospace, Menlo, Consolas, monospace; }
pre { padding: 14px; border: 1px solid var(--line); border-radius: 10px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: 6px 10px 6px 0;
vertical-align: top; border-top: 1px solid var(--line); } td:nth-child(2) { color: var(--quiet); }
"""


@cache
def docs_page() -> str:
    """A page that explains the interface; it asks for nothing from elsewhere."""
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'><link rel=icon href='data:,'>",
        f"<title>anyorder: HTTP interface</title><style>{_STYLE}</style></head><body><main>",
        "<h1>HTTP interface</h1><p>Requests and answers are JSON. <a href=/openapi.json>openapi.json</a> ",
        "describes them for programs; the <a href=/>studio</a> uses nothing else.</p>",
    ]
    for path, (request, meaning, _) in WRITES.items():
        parts.append(f"<h2>POST <code>{path}</code></h2><p>{html.escape(meaning)}</p>")
        body = json.dumps(EXAMPLES[path])
        curl = f"curl -s localhost:8000{path} -H 'Content-Type: application/json' -d '{body}'"
        parts.append(f"<pre tabindex=0>{html.escape(curl)}</pre><table><tr><th>field<th>type<th>meaning</tr>")
        schema = request.model_json_schema(ref_template=REFERENCE)
        for name, field in schema["properties"].items():
            cells = (f"<code>{name}</code>", _type_of(field), html.escape(field.get("description", "")))
            parts.append(f"<tr><td>{'<td>'.join(cells)}</tr>")
        parts.append("</table>")
    for path, (meaning, _) in READS.items():
        parts.append(f"<h2>GET <code>{path}</code></h2><p>{html.escape(meaning)}</p>")
    rows = "".join(f"<tr><td>{status}<td>{html.escape(why)}</tr>" for status, why in REFUSALS.items())
    parts.append(
        '<h2>Refusals</h2><p>Their body is <code>{"error": …}</code>, one sentence.</p>'
        f"<table>{rows}</table>"
    )
    return "".join([*parts, "</main></body></html>"])


def _type_of(field: dict[str, Any]) -> str:
    kinds = [one for one in field.get("anyOf", [field]) if one.get("type") != "null"]
    return html.escape(
        " or ".join(str(one.get("type", one.get("$ref", "").rpartition("/")[2])) for one in kinds)
    )
