"""What required words and blanks do to a translation: BLEU, constraints kept, time against free decoding."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from anyorder.batch import collate_sources
from anyorder.bench.grid_beam import grid_beam
from anyorder.errors import UserError
from anyorder.families import ordered
from anyorder.generate import Writer
from anyorder.metrics import Options, Result, evaluate
from anyorder.metrics.significance import compare

REQUIRED = (1, 2, 4)  # words of the reference, each set within the next
LONGEST = 60  # tokens, by the grid beam search
SEED = 1


@dataclass(frozen=True)
class Line:
    """One setting, over all sentences."""

    name: str
    bleu: float
    kept: float | None  # share of constraints, in percent; None: there are none
    words: float  # written a sentence
    milliseconds: float  # of the processor, a sentence
    ratio: float  # to free decoding, for as many words
    p: float | None = None  # that BLEU differs by chance alone from the line's baseline
    against: str | None = None


def bench_completing(
    writer: Writer,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    baseline: Writer | None = None,
    beam: int,
) -> list[Line]:
    """Free, with required words, and with a third blanked out; by grid beam search too, for a baseline."""
    bench = _Bench(writer, sources, references, beam=beam)
    lines = [bench.line("free", partial(bench.free, writer), against=None)]
    before = "free"
    for number in REQUIRED:
        must = [words[:number] for words in bench.words]
        name = f"{number} required"
        lines.append(bench.line(name, partial(bench.required, must), musts=must, against=before))
        before = name
    prefixes = [_prefix(reference) for reference in references]
    lines.append(bench.line("first third given", partial(bench.prefixed, prefixes), against="free"))
    lines.append(bench.line("a third blanked out", bench.blanked, against="first third given"))
    if baseline is not None:
        lines.append(bench.line("baseline, free", partial(bench.free, baseline), against="free"))
        for number in REQUIRED:
            must = [words[:number] for words in bench.words]
            lines.append(
                bench.line(
                    f"grid beam, {number} required",
                    partial(bench.grid, baseline, must),
                    musts=must,
                    against=f"{number} required",
                )
            )
    return lines


class _Bench:
    """The sentences, and what was written for them so far."""

    def __init__(
        self, writer: Writer, sources: Sequence[str], references: Sequence[str], *, beam: int
    ) -> None:
        self.writer, self.sources, self.references, self.beam = writer, sources, references, beam
        chance = np.random.default_rng(SEED)
        self.words = [_drawn_words(reference, chance) for reference in references]
        self.templates = [_blanked(reference, chance) for reference in references]
        self.results: dict[str, Result] = {}
        self.free_cost = 0.0  # milliseconds a word

    def line(
        self,
        name: str,
        write: Callable[[], list[str]],
        *,
        musts: Sequence[Sequence[str]] | None = None,
        against: str | None,
    ) -> Line:
        """Time and score one setting."""
        began = time.process_time()
        written = write()
        milliseconds = 1000 * (time.process_time() - began) / len(written)
        side = self.writer.trained.recipe.text.target
        result = evaluate(written, [self.references], metrics=["bleu"], options=Options.for_side(side))[
            "bleu"
        ]
        self.results[name] = result
        words = sum(len(text.split()) for text in written) / len(written)
        if not words:
            raise UserError(f"{name}: the model writes no word, so there is no time of a word")
        self.free_cost = self.free_cost or milliseconds / words
        kept = None
        if musts is not None:
            kept = kept_share(written, musts)
        elif name == "a third blanked out":
            kept = 100 * float(
                np.mean([fits(text, one) for text, one in zip(written, self.templates, strict=True)])
            )
        return Line(
            name=name,
            bleu=result.score,
            kept=kept,
            words=words,
            milliseconds=milliseconds,
            ratio=milliseconds / words / self.free_cost,
            p=None if against is None else compare(result, self.results[against]).randomisation_p,
            against=against,
        )

    def free(self, writer: Writer) -> list[str]:
        """What is written when nothing is given."""
        return [outputs[0].text for outputs in writer.generate(self.sources, beam=self.beam)]

    def required(self, musts: Sequence[Sequence[str]]) -> list[str]:
        """With some words required, in any order."""
        return self._completed([{"must": list(must)} for must in musts])

    def prefixed(self, prefixes: Sequence[str]) -> list[str]:
        """All that a left-to-right model can be given without a search of its own."""
        return self._completed([{"prefix": prefix} for prefix in prefixes])

    def blanked(self) -> list[str]:
        """With two thirds of the reference given, around a blank."""
        return self._completed([{"template": template} for template in self.templates])

    def _completed(self, canvases: Sequence[dict[str, Any]]) -> list[str]:
        return [outputs[0].text for outputs in self.writer.complete(self.sources, canvases, beam=self.beam)]

    def grid(self, baseline: Writer, musts: Sequence[Sequence[str]]) -> list[str]:
        """By grid beam search over a model that writes from left to right."""
        model, tokenizer = ordered(baseline.trained.model, purpose="bench complete"), baseline.tokenizer
        ends_word = torch.from_numpy(tokenizer.ends_word[: tokenizer.target_size])
        written = []
        for source, must in zip(self.sources, musts, strict=True):
            ids, mask = collate_sources([np.array(tokenizer.encode(source, "source").ids, dtype=np.int32)])
            tokens = grid_beam(
                model,
                ids,
                mask,
                required=[tuple(tokenizer.encode(word, "target").ids) for word in must],
                ends_word=ends_word,
                width=self.beam,
                limit=LONGEST,
            )
            written.append(tokenizer.decode(tokens))
        return written


# --- what is asked for, and whether it was kept: by text alone ---


def kept_share(written: Sequence[str], musts: Sequence[Sequence[str]]) -> float | None:
    """Percent of required words that stand in the text as whole words, as often as they are required.

    None: none are required.
    """
    kept = asked = 0
    for text, must in zip(written, musts, strict=True):
        for word in set(must):
            found = len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags=re.IGNORECASE))
            kept += min(found, list(must).count(word))
        asked += len(must)
    return 100 * kept / asked if asked else None


def fits(text: str, template: str) -> bool:
    """Whether a text is a template with its blank filled."""
    before, after = template.split("___")
    return text.startswith(before.rstrip()) and text.endswith(after.lstrip())


def _drawn_words(reference: str, chance: np.random.Generator) -> list[str]:
    """Words of a reference, by chance, without their punctuation."""
    words = [word for word in re.findall(r"\w+(?:-\w+)*", reference) if word.isalpha()]
    return [words[number] for number in chance.permutation(len(words))[: max(REQUIRED)]]


def _blanked(reference: str, chance: np.random.Generator) -> str:
    """A reference with a third of its words, side by side, left out."""
    words = reference.split()
    missing = max(1, len(words) // 3)
    start = int(chance.integers(len(words) - missing + 1))
    return " ".join([*words[:start], "___", *words[start + missing :]])


def _prefix(reference: str) -> str:
    words = reference.split()
    return " ".join(words[: max(1, len(words) // 3)])
