"""A model on several machines with Ray Serve: `pip install 'ray[serve]'`, then `serve run examples.ray_serve:app`."""

from __future__ import annotations

from ray import serve
from starlette.requests import Request

import anyorder


@serve.deployment(num_replicas=2, max_ongoing_requests=64)
class Writer:
    """One replica of the model. Requests that wait are decoded together."""

    def __init__(self, folder: str) -> None:
        self.model = anyorder.load(folder)

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.005)
    async def write(self, sources: list[str]) -> list[str]:
        """The best text for each source."""
        return [answer.text for answer in self.model.generate(sources)]

    async def __call__(self, request: Request) -> dict[str, str]:
        """Answer {"source": ...}."""
        source = (await request.json())["source"]
        return {"source": source, "text": await self.write(source)}


app = Writer.bind("django-small")
