"""A source mapped word for word, in every order: an easy task that a model must learn to write.

No word comes twice in a sentence, so that a word tells its place. One order is learned at each run of the
tests, all of them and the other kinds of models with `-m slow`, in minutes each; the results are written down
in docs/results/synthetic.md.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from anyorder.config.order import Order
from anyorder.config.recipe import Recipe
from anyorder.data.orderer import Line, prepare_order
from anyorder.inference.generator import Generator
from anyorder.inference.hypothesis import Hypothesis
from anyorder.training.trainer import train

SOURCE_WORDS = [consonant + vowel for consonant in "bdfgkl" for vowel in "aeiou"]
TARGET_WORDS = [word.upper() for word in SOURCE_WORDS]
FEWEST, MOST = 4, 12
TRAIN, HELD_OUT = 20_000, 200

FAST = ("l2r",)
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
# A part of a target teaches less than all its steps at once.
INSERTION_TRANSFORMER_STEPS = 5000


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


def other_kind(recipe: Recipe, *, steps: int, **sections: dict[str, object]) -> Recipe:
    """The same experiment with another model, under the name of what differs."""
    values = recipe.model_dump(mode="json")
    for name, section in sections.items():
        values[name] |= section
    values["train"] |= {"steps": steps, "validate_every": steps}
    differs = "-".join(str(value) for section in sections.values() for value in section.values())
    return Recipe.model_validate(values | {"run": recipe.run.with_name(differs)})


def written(generator: Generator, corpus: Corpus, **options: object) -> list[tuple[Hypothesis, str]]:
    """The output for each held-out sentence, beside what it should be."""
    sources = [" ".join(SOURCE_WORDS[word] for word in sentence) for sentence in corpus.held_out]
    wanted = [" ".join(TARGET_WORDS[word] for word in sentence) for sentence in corpus.held_out]
    outputs = [best for best, *_ in generator.generate(sources, **options)]
    return list(zip(outputs, wanted, strict=True))


def exactly_right(pairs: list[tuple[Hypothesis, str]]) -> float:
    return sum(output.text == text for output, text in pairs) / len(pairs)


def follows(output: Hypothesis, order: Order, *, number: int, generator: Generator) -> bool:
    """Whether an output was written in the order that its own words ask for."""
    words = output.text.split()
    orderer = prepare_order(order, split="dev", common=generator.trained.common_words)
    (positions,) = orderer.positions([Line(number=number, words=words, pieces=[1] * len(words))])
    return list(output.positions) == positions


@pytest.mark.parametrize(
    "order",
    [pytest.param(order, marks=() if order in FAST else pytest.mark.slow) for order in STEPS],
)
def test_a_small_model_learns_to_write_in_this_order(order: str, corpus: Corpus) -> None:
    recipe = recipe_for(order, corpus)
    train(recipe, listener=Silence())
    generator = Generator.load(recipe.run)
    pairs = written(generator, corpus)
    exact = exactly_right(pairs)
    print(f"\n{order}: {exact:.1%} exact after {recipe.train.steps} steps", end="")
    assert exact >= 0.95
    if order == "rnd":
        return
    section = recipe.order.model_copy(
        update={"files": {split: corpus.folder / path for split, path in recipe.order.files.items()}}
    )
    followed = sum(
        output.text == text and follows(output, section, number=number, generator=generator)
        for number, (output, text) in enumerate(pairs, start=1)
    )
    print(f", {followed / len(pairs):.1%} exact and in order", end="")
    assert followed / len(pairs) >= 0.95


@pytest.mark.slow
def test_an_ordinary_transformer_learns_it_too(corpus: Corpus) -> None:
    recipe = other_kind(recipe_for("l2r", corpus), steps=STEPS["l2r"], model={"kind": "transformer"})
    train(recipe, listener=Silence())
    exact = exactly_right(written(Generator.load(recipe.run), corpus))
    print(f"\ntransformer: {exact:.1%} exact after {recipe.train.steps} steps", end="")
    assert exact >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "termination"), [("binary", "gap"), ("uniform", "gap"), ("binary", "sequence")]
)
def test_an_insertion_transformer_learns_it_too(loss: str, termination: str, corpus: Corpus) -> None:
    """In parallel by a balanced tree, a sentence of T words takes no more rounds than such a tree is deep."""
    recipe = other_kind(
        recipe_for("l2r", corpus),
        steps=INSERTION_TRANSFORMER_STEPS,
        model={"kind": "insertion"},
        insertion={"loss": loss, "termination": termination, "temperature": 0.5},
    )
    train(recipe, listener=Silence())
    generator = Generator.load(recipe.run)
    greedy = exactly_right(written(generator, corpus))
    print(f"\n{loss}, {termination}: {greedy:.1%} exact after {recipe.train.steps} steps", end="")
    assert greedy >= 0.95
    if termination == "sequence":
        return
    pairs = written(generator, corpus, parallel=True)
    exact = exactly_right(pairs)
    rounds = sum(output.iterations for output, _ in pairs) / len(pairs)
    depth = sum(math.floor(math.log2(len(text.split()))) + 1 for _, text in pairs) / len(pairs)
    print(f", in parallel {exact:.1%} in {rounds:.2f} rounds (a balanced tree: {depth:.2f})", end="")
    if loss == "binary":
        assert exact >= 0.95
        assert rounds <= depth + 0.25
