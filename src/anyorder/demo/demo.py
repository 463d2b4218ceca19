"""The demo: a shipped model writes code, small models learn to describe pictures, and one finds its order.

The package draws the pictures and writes their captions, so the demo needs no data. Both models learn the
same captions. One writes them left to right, the other rare words first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from anyorder.config.recipe import Recipe, load_recipe
from anyorder.demo.found_order import Watch, show_found_order
from anyorder.demo.pictures import Scenes, draw_scenes, patches
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Hypothesis
from anyorder.metrics import bleu, exact
from anyorder.training.trainer import train
from anyorder.viz.page import Rendition, Replay, write_page
from anyorder.viz.trace import draw_trace

TRAIN, DEV, HELD_OUT, SHOWN = 12_000, 100, 200, 3
CODE_MODEL = "django-small"


# The training data has none of these lines and few of their names.
DESCRIPTIONS = (
    "call the function brew with arguments teapot and water .",
    "if kettle is an instance of Copper ,",
    "for every spoon in drawer . spoons ,",
)
ORDERS = {"l2r": "left to right", "rf": "rare words first"}
RECIPE = """\
# Captions for small pictures: what `anyorder demo` trains. Change a key and train again, e.g.
# anyorder train {folder}/recipe.toml order.name=blt run={folder}/blt

[data]
root = {root}
cache = "cache"
train = {{ features = "train.npy", target = "train.txt" }}
dev = {{ features = "dev.npy", target = "dev.txt" }}
test = {{ features = "test.npy", target = "test.txt" }}

[text]
unit = "words"
target = {{ split = "spaces" }}

[model]
width = 128
hidden = 256
heads = 4
encoder_layers = 2
decoder_layers = 2
dropout = 0.0
encoder_positions = "sinusoidal"

[train]
steps = 1200
batch_tokens = 2000
lr = 3e-3
warmup = 100
schedule = "cosine"
validate_every = 600
validate_lines = 100
select = "exact"
log_every = 25
"""


@dataclass(frozen=True)
class Described:
    """What one model wrote about the held-out pictures."""

    order: str
    hypotheses: list[Hypothesis]
    bleu: float
    exact: float
    seconds: float  # of training


def run_demo(*, folder: Path, page: Path, console: Console, watch: Watch) -> None:
    """Write code, learn captions in two orders, find an order, and write a page of it all."""
    say = console.print
    _write_code(console)
    scenes, held_out = draw_scenes(TRAIN + DEV + HELD_OUT, seed=1).split(held_out=HELD_OUT)
    learned, dev = scenes.split(held_out=DEV)
    recipe = _write_corpus(folder, {"train": learned, "dev": dev, "test": held_out})
    say(f"Drew {TRAIN} pictures to learn from and {HELD_OUT} others to describe, for example:")
    say(f"  {learned.captions[0]}\n")
    described = [_learn_and_describe(recipe, order, folder, held_out, watch) for order in ORDERS]
    for one in described:
        scores = (
            f"   BLEU {one.bleu:5.1f}   exactly right {one.exact:5.1f} %   trained in {one.seconds:.0f} s"
        )
        say(Text.assemble((f"{ORDERS[one.order]:>16}", "bold"), scores))
    for shown in range(SHOWN):
        say(
            Text.assemble((f"\npicture {shown + 1}, its own caption:", "dim"), f" {held_out.captions[shown]}")
        )
        for one in described:
            hypothesis = one.hypotheses[shown]
            say(draw_trace(hypothesis.steps, f"{ORDERS[one.order]}: {hypothesis.text}"))
    found = show_found_order(folder=folder, console=console, watch=watch)
    _write_replays(page, held_out, described, found)
    say(Text.assemble("\nWatch them being written: open ", (str(page), "bold"), " in a browser."))
    say(f"Describe more: anyorder generate {folder}/rf {folder}/data/test.npy --trace")


def _write_code(console: Console) -> None:
    def say(text: str, style: str = "") -> None:
        console.print(Text(text, style), soft_wrap=True)  # unwrapped, so that it can be copied

    say(f"A model that comes with anyorder, {CODE_MODEL}, writes Python from a description:\n")
    written = Generator.load(CODE_MODEL).generate(DESCRIPTIONS)
    for description, (best, *_) in zip(DESCRIPTIONS, written, strict=True):
        say(description, "dim")
        console.print(draw_trace(best.steps, best.text))
        say("")
    say(f'Ask for more: echo "return the length of soup ." | anyorder generate {CODE_MODEL} --trace')
    say("\nNow two small models learn from scratch.", "bold")


def _write_corpus(folder: Path, splits: Mapping[str, Scenes]) -> Path:
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    for split, scenes in splits.items():
        np.save(data / f"{split}.npy", patches(scenes.pictures).astype(np.float16))
        (data / f"{split}.txt").write_text("".join(f"{caption}\n" for caption in scenes.captions))
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder, root=json.dumps(str(data), ensure_ascii=False)))
    return recipe


def _learn_and_describe(recipe: Path, order: str, folder: Path, held_out: Scenes, watch: Watch) -> Described:
    settings: Recipe = load_recipe(recipe, [f"order.name={order}", f"run={folder / order}"])
    began = time.perf_counter()
    with watch() as watcher:
        watcher.note(f"learning to write {ORDERS[order]} …")
        train(settings, listener=watcher, overwrite=True)
    seconds = time.perf_counter() - began
    generator = Generator.load(settings.run)
    hypotheses = [best for best, *_ in generator.generate(list(patches(held_out.pictures)))]
    texts = [hypothesis.text for hypothesis in hypotheses]
    return Described(
        order=order,
        hypotheses=hypotheses,
        bleu=bleu(texts, held_out.captions, side=settings.text.target),
        exact=exact([text.split() for text in texts], [caption.split() for caption in held_out.captions]),
        seconds=seconds,
    )


def _write_replays(
    page: Path, held_out: Scenes, described: Sequence[Described], found: Sequence[Replay]
) -> None:
    replays = [
        Replay(
            picture=held_out.pictures[number],
            reference=held_out.captions[number],
            renditions=[
                Rendition(
                    order=ORDERS[one.order],
                    steps=one.hypotheses[number].steps,
                    score=one.hypotheses[number].score,
                    equals_reference=one.hypotheses[number].text == held_out.captions[number],
                )
                for one in described
            ],
        )
        for number in range(2 * SHOWN)
    ]
    write_page(
        page,
        "The same sentence, written in two orders",
        [*replays, *found],
        intro="Two small models were trained on the same pictures. One writes its captions from left to "
        "right, the other the rare words first. These pictures were held out. Below, two models add numbers: "
        "one from left to right, the other in an order that it has found.",
    )
