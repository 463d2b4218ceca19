"""A source mapped word for word, in every order: an easy task that a model must learn to write.

No word comes twice in a sentence, so that a word tells its place. Two orders are learned at each run of the
tests, all of them with `-m slow`, in minutes each; the results are written down in docs/measured.md.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from anyorder.config import Order, Recipe
from anyorder.generate import Output, Writer
from anyorder.orders import Line, prepare_order
from anyorder.train import train

SOURCE_WORDS = [consonant + vowel for consonant in "bdfgkl" for vowel in "aeiou"]
TARGET_WORDS = [word.upper() for word in SOURCE_WORDS]
FEWEST, MOST = 4, 12
TRAIN, HELD_OUT = 20_000, 200

FAST = ("l2r", "rf")
# Steps that an order needs; one that looks ahead, or has no rule at all, is harder to learn.
STEPS = {
    "l2r": 700,
    "rf": 1200,
    "r2l": 1000,
    "cf": 1500,
    "odd": 2500,
    "syn": 2500,
    "blt": 3000,
    "rnd": 12_000,
}


@dataclass(frozen=True)
class Corpus:
    """Word numbers of each sentence, and where its files lie."""

    folder: Path
    held_out: list[list[int]]


def sentences(count: int, chance: random.Random) -> list[list[int]]:
    """Different sentences of different words; words of a low number are more frequent, as cf and rf need."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        keys = {word: chance.random() ** (word + 3) for word in range(len(SOURCE_WORDS))}
        chosen = sorted(keys, key=lambda word: -keys[word])[: chance.randint(FEWEST, MOST)]
        chance.shuffle(chosen)
        found[tuple(chosen)] = None
    return [list(sentence) for sentence in found]


def heads(sentence: list[int]) -> list[int]:
    """A tree that the words decide: the smallest is the root, even ones hang on it, odd ones on these."""
    root = min(sentence)
    even = [word for word in sentence if word % 2 == 0 and word != root]

    def head(word: int) -> int:
        if word == root:
            return 0
        parent = even[0] if word % 2 and even else root
        return sentence.index(parent) + 1

    return [head(word) for word in sentence]


def conllu(sentence: list[int]) -> str:
    rows = (
        f"{number}\t{TARGET_WORDS[word]}\t_\t_\t_\t_\t{head}\tdep\t_\t_\n"
        for number, (word, head) in enumerate(zip(sentence, heads(sentence), strict=True), start=1)
    )
    return "".join(rows) + "\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("synthetic")
    everything = sentences(TRAIN + HELD_OUT, random.Random(1))
    parts = {"train": everything[:TRAIN], "dev": everything[TRAIN:]}
    for split, part in parts.items():
        for side, words in (("source", SOURCE_WORDS), ("target", TARGET_WORDS)):
            lines = (" ".join(words[word] for word in sentence) for sentence in part)
            (folder / f"{split}.{side}").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{split}.conllu").write_text("".join(map(conllu, part)))
    return Corpus(folder=folder, held_out=parts["dev"])


def recipe_for(order: str, corpus: Corpus) -> Recipe:
    files = {"files": {"train": "train.conllu", "dev": "dev.conllu"}} if order == "syn" else {}
    spaces = {"split": "spaces"}
    return Recipe.model_validate(
        {
            "run": corpus.folder / "runs" / order,
            "data": {
                "root": corpus.folder,
                "cache": "cache",
                "train": {"source": "train.source", "target": "train.target"},
                "dev": {"source": "dev.source", "target": "dev.target"},
            },
            "text": {"unit": "words", "source": spaces, "target": spaces},
            "order": {"name": order, **files},
            "model": {
                "width": 64,
                "hidden": 128,
                "heads": 4,
                "encoder_layers": 2,
                "decoder_layers": 2,
                "dropout": 0.0,
                "encoder_positions": "sinusoidal",
                # With no rule to go by, it is easier to choose a gap and then the word that it wants.
                "first": "position" if order == "rnd" else "word",
            },
            "train": {
                "steps": STEPS[order],
                "batch_tokens": 2000,
                "lr": 3e-3,
                "warmup": 200,
                "schedule": "cosine",
                "validate_every": STEPS[order],
                "validate_lines": 0,
            },
        }
    )


class Silence:
    """A listener that says nothing."""

    def note(self, text: str) -> None: ...

    def preparing(self, what: str, done: int, total: int) -> None: ...

    def trained(self, step: int, steps: int, metrics: dict[str, float]) -> None: ...

    def validated(self, step: int, scores: dict[str, float], *, best: bool) -> None: ...


def follows(output: Output, order: Order, *, number: int, writer: Writer) -> bool:
    """Whether an output was written in the order that its own words ask for."""
    words = output.text.split()
    orderer = prepare_order(order, split="dev", common=writer.trained.common_words)
    (slots,) = orderer.slots([Line(number=number, words=words, pieces=[1] * len(words))])
    return list(output.slots) == slots


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=() if order in FAST else pytest.mark.slow) for order in STEPS],
)
def test_a_small_model_learns_to_write_in_this_order(order: str, corpus: Corpus) -> None:
    recipe = recipe_for(order, corpus)
    train(recipe, listener=Silence())
    writer = Writer.load(recipe.run)
    sources = [" ".join(SOURCE_WORDS[word] for word in sentence) for sentence in corpus.held_out]
    wanted = [" ".join(TARGET_WORDS[word] for word in sentence) for sentence in corpus.held_out]
    outputs = [best for best, *_ in writer.generate(sources)]
    exact = sum(output.text == text for output, text in zip(outputs, wanted, strict=True)) / len(wanted)
    print(f"\n{order}: {exact:.1%} exact after {recipe.train.steps} steps", end="")
    assert exact >= 0.95
    if order == "rnd":
        return
    section = recipe.order.model_copy(
        update={"files": {split: corpus.folder / path for split, path in recipe.order.files.items()}}
    )
    followed = sum(
        output.text == text and follows(output, section, number=number, writer=writer)
        for number, (output, text) in enumerate(zip(outputs, wanted, strict=True), start=1)
    )
    print(f", {followed / len(wanted):.1%} exact and in order", end="")
    assert followed / len(wanted) >= 0.95
