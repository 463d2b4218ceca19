"""Decoding: from sources to finished hypotheses, by beam search or by sampling.

Sources of similar length are decoded together, as many as fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from anyorder import config
from anyorder.data.batches import collate_sources
from anyorder.decoding.allowed import allowed_steps
from anyorder.decoding.beam import Beam, Extension, TokenHypothesis, length_divisor, rank
from anyorder.decoding.beam_search import Expansion, search_joint, search_two_step
from anyorder.decoding.constrained_scores import ConstrainedStep, required_bonus
from anyorder.decoding.constraint_state import ConstraintState
from anyorder.decoding.constraints import Canvas, Constraints
from anyorder.decoding.insertion_transformer import decode_insertions
from anyorder.decoding.loop import write
from anyorder.decoding.sampling import SAMPLED_AT_ONCE, sample, uniform_numbers
from anyorder.decoding.step_scorer import StepScorer
from anyorder.insertion import NEG_INF
from anyorder.models.choices import StepChoices
from anyorder.models.editor import Editor
from anyorder.models.indigo import Indigo
from anyorder.models.insertion_transformer import InsertionTransformer
from anyorder.models.registry import Model

# S sentences under way, K hypotheses of each

DECODED_AT_ONCE = 128  # sources
DECODING_MEMORY = 2**30  # bytes, without the weights; limits how many sources are decoded at once
FLOAT_BYTES = 4


@dataclass(frozen=True)
class CanvasBatch:
    """What each target must keep to."""

    canvases: Sequence[Canvas]
    ends_word: Tensor  # (ids,), bool: the token ends a word

    def ends(self, ids: int) -> Tensor:
        """`ends_word` for this number of ids; unknown words of a source are whole words."""
        return functional.pad(self.ends_word, (0, max(0, ids - len(self.ends_word))), value=True)[:ids]


def decode_all(
    model: Model,
    sources: Sequence[NDArray[np.generic]],
    *,
    settings: config.Decode,
    device: torch.device,
    lines: Sequence[int] | None = None,
    around: CanvasBatch | None = None,
) -> list[list[TokenHypothesis]]:
    """Decode sources of any length; the answers come in the order of the sources.

    lines: the number of each source, which sampling depends on; around: constraints of each target.
    """
    found: list[list[TokenHypothesis]] = [[] for _ in sources]
    limits = length_limits(sources, settings)
    if around is not None:
        limits = limits_around(around.canvases, limits, settings)
    for chosen in _by_length(model, sources, limits, settings):
        source, mask = collate_sources([sources[index] for index in chosen])
        constraints = None
        if around is not None:
            canvases = [around.canvases[index] for index in chosen]
            assert isinstance(model, Indigo), "only such models can keep to a canvas"
            ids = model.writable_ids(source)
            constraints = Constraints.of(
                canvases, ends_word=around.ends(ids).to(device), limits=limits[chosen]
            )
        answers = decode_batch(
            model,
            source.to(device),
            mask.to(device),
            settings=settings,
            limits=limits[chosen],
            lines=[index if lines is None else lines[index] for index in chosen],
            constraints=constraints,
        )
        for index, answer in zip(chosen, answers, strict=True):
            found[index] = answer
    return found


def decode_batch(
    model: Model,
    source: Tensor,
    mask: Tensor,
    *,
    settings: config.Decode,
    limits: Tensor,
    lines: Sequence[int] | None = None,
    constraints: Constraints | None = None,
) -> list[list[TokenHypothesis]]:
    """The best hypotheses of each source, best first, by the loop that this family of models decodes with."""
    if isinstance(model, InsertionTransformer):
        assert constraints is None, "an Insertion Transformer can't keep to a canvas"
        return decode_insertions(model, source, mask, settings=settings, limits=limits, lines=lines)
    assert not isinstance(model, Editor), "an editor needs a draft: see `decoding.editing`"
    return decode(model, source, mask, settings=settings, limits=limits, lines=lines, constraints=constraints)


def limits_around(canvases: Sequence[Canvas], limits: Tensor, settings: config.Decode) -> Tensor:
    """Raise the limits so that required tokens and some words more always fit."""
    least = torch.tensor([canvas.least_tokens for canvas in canvases])
    needed = torch.where(least > 0, least + settings.max_extra, 0)
    return torch.maximum(limits, needed).clamp(max=settings.max_length)


def _by_length(
    model: Model, sources: Sequence[NDArray[np.generic]], limits: Tensor, settings: config.Decode
) -> Iterator[list[int]]:
    """Group sources that are decoded together: as many as fit, the shortest first."""
    together: list[int] = []
    longest = 0
    for index in sorted(range(len(sources)), key=lambda index: len(sources[index])):
        # All are padded to the longest target, which required words may ask for anywhere.
        longest = max(longest, int(limits[index]))
        need = decoding_memory(model, settings, source=len(sources[index]), target=longest)
        if len(together) == DECODED_AT_ONCE or (together and (len(together) + 1) * need > DECODING_MEMORY):
            yield together
            together, longest = [], int(limits[index])
        together.append(index)
    if together:
        yield together


def decoding_memory(model: Model, settings: config.Decode, *, source: int, target: int) -> int:
    """Estimate the bytes that decoding one sentence takes: keys and values, and logits of the next words.

    source, target: lengths.
    """
    sizes = model.settings
    hypotheses = min(settings.n_best, SAMPLED_AT_ONCE) if settings.search == "sample" else settings.beam
    vectors = 2 * sizes.width * (sizes.decoder_layers + 1)  # of a token, with its gap keys
    logits = 2 * model.shape.target_vocabulary
    if isinstance(model, InsertionTransformer):  # words of all gaps at once
        logits *= target + 1
        source *= hypotheses  # each reads its own copy
    return FLOAT_BYTES * (source * vectors + hypotheses * (target * vectors + logits))


def length_limits(sources: Sequence[NDArray[np.generic]], settings: config.Decode) -> Tensor:
    """Most tokens to write for each source; a ratio to the source means nothing for images."""
    relative = settings.max_ratio > 0 and all(source.ndim == 1 for source in sources)
    longest = [
        min(settings.max_length, int(settings.max_ratio * len(source)) + settings.max_extra)
        if relative and len(source)  # models of targets alone have empty sources
        else settings.max_length
        for source in sources
    ]
    return torch.tensor(longest, dtype=torch.long)


@torch.inference_mode()
def decode(
    model: Indigo,
    source: Tensor,
    mask: Tensor,
    *,
    settings: config.Decode,
    limits: Tensor,
    lines: Sequence[int] | None = None,
    constraints: Constraints | None = None,
) -> list[list[TokenHypothesis]]:
    """Find the best hypotheses of each source, best first.

    source, mask: as `Indigo.encode` takes them; limits: (sources,), most tokens to write. Sampling depends
    on the seed and on each source's number in `lines`, not on what else is in the batch. constraints: what
    the sentences must keep to; None for nothing.
    """
    memory = model.encode_sorted(source, mask, None if constraints is None else constraints.required)

    def found(uniform: Tensor | None) -> list[list[TokenHypothesis]]:
        strategy = Decoding(model, settings, limits.to(source.device), constraints, uniform)
        write(model, memory, strategy, hypotheses=1 if uniform is None else uniform.shape[2])
        return strategy.found

    if settings.search != "sample":
        return [rank(hypotheses, settings) for hypotheses in found(None)]
    uniform = uniform_numbers(settings, lines or range(len(source)), limits).to(source.device)
    parts = [found(part) for part in uniform.split(SAMPLED_AT_ONCE, dim=2)]
    return [rank(list(chain.from_iterable(of_source)), settings) for of_source in zip(*parts, strict=True)]


Observer = Callable[[StepScorer, Expansion], Expansion]  # returns the step that is to be taken


class Decoding:
    """The strategy of beam search and sampling: which hypotheses end, and which go on.

    uniform: random numbers to sample by, (sources, steps, K, 2); None for beam search.
    """

    # Looks at each step before its sentences leave; `inspection` describes steps to people.
    observer: Observer | None = None

    def __init__(
        self,
        model: Indigo,
        settings: config.Decode,
        limits: Tensor,
        constraints: Constraints | None,
        uniform: Tensor | None,
    ) -> None:
        self.model, self.settings, self.limits, self.uniform = model, settings, limits, uniform
        self.found: list[list[TokenHypothesis]] = [[] for _ in limits]
        self.bonus = 0.0  # rank bonus of a required token; chance needs none
        self.constraint_state = None
        if constraints is not None:
            self.bonus = 0.0 if uniform is not None else required_bonus(model)
            hypotheses = 1 if uniform is None else uniform.shape[2]
            self.constraint_state = ConstraintState.start(constraints, hypotheses=hypotheses)
        self.constrained: ConstrainedStep | None = None  # of the step under way
        self.full = limits.new_zeros(0, dtype=torch.bool)  # (S,), sentences at their length limit

    def given(self, newest: int) -> Tensor | None:
        """Which of the newest tokens the template gave."""
        return None if self.constraint_state is None else self.constraint_state.given(newest)

    def extend(self, beam: Beam, choices: StepChoices) -> Extension:
        """Search the next step, and collect the hypotheses that end with it."""
        if self.constraint_state is not None:
            self.constrained = ConstrainedStep(
                self.constraint_state,
                beam,
                allowed_steps(self.constraint_state, beam),
                first_word=self.model.word_head.first,
                position_first=self.model.position_first,
                unknown=self.settings.unknown,
                bonus=self.bonus,
            )
        scorer = StepScorer(choices, beam, unknown=self.settings.unknown, constrained=self.constrained)
        expansion = self._searched(scorer)
        if self.observer is not None:
            expansion = self.observer(scorer, expansion)
        self.full = beam.lengths >= self.limits[beam.sentences]
        self._collect(beam, expansion)
        return expansion.extension

    def settle(self, beam: Beam, extension: Extension) -> tuple[Beam, Tensor]:
        """Drop the sentences that are full, or that can't improve on what was found."""
        if self.settings.merge_partial:
            beam = beam.merged()
        promising = (beam.log_prob > NEG_INF).any(dim=1)
        if self.uniform is None:
            promising &= self._may_improve(beam)
        staying = (~self.full & promising).nonzero().squeeze(1)
        if self.constraint_state is not None and self.constrained is not None:
            self.constraint_state = self.constraint_state.grow(self.constrained.allowed, extension).keep(
                staying
            )
        return beam, staying

    # --- sentences that join and leave ---

    def join(self, beam: Beam, other: Decoding, others: Beam) -> None:
        """Take over the sentences of another strategy, as `Beam.join` numbers them.

        beam, others: before they are joined.
        """
        both = ((self, beam.sentences), (other, others.sentences))
        found = [one.found[sentence] for one, rows in both for sentence in rows.tolist()]
        limits = torch.cat([one.limits[rows] for one, rows in both])
        if self.uniform is not None and other.uniform is not None:
            steps = max(self.uniform.shape[1], other.uniform.shape[1])
            self.uniform = torch.cat([_with_steps(one.uniform, rows, steps) for one, rows in both])
        if self.constraint_state is not None and other.constraint_state is not None:
            self.constraint_state = self.constraint_state.join(other.constraint_state)
        self.found, self.limits = found, limits

    def keep(self, staying: Tensor) -> None:
        """Give up the other sentences under way. staying: rows, rising."""
        if self.constraint_state is not None:
            self.constraint_state = self.constraint_state.keep(staying)

    def trim(self, columns: int) -> None:
        """Remove columns of padding, as `Beam.trimmed` does."""
        if self.constraint_state is not None:
            self.constraint_state = self.constraint_state.trimmed(columns)

    def _searched(self, scorer: StepScorer) -> Expansion:
        if self.uniform is not None:
            return sample(scorer, self.uniform[scorer.beam.sentences, scorer.beam.lengths], self.settings)
        search = search_joint if self.settings.search == "joint" else search_two_step
        return search(scorer, self.settings.beam)

    def _collect(self, beam: Beam, expansion: Expansion) -> None:
        """Keep the hypotheses that end here, and those that may not grow any more."""
        cut_off = self.full[:, None] & ~expansion.ends & (beam.log_prob > NEG_INF)
        leaving = expansion.ends | cut_off
        if not bool(leaving.any()):
            return
        rows = leaving.nonzero()[:, 0]
        ends = expansion.end_scores.masked_fill(~expansion.ends, NEG_INF)
        hypotheses = beam.hypotheses(leaving, ends=ends, end_is_word=not self.model.position_first)
        if self.constraint_state is not None:
            owners = self.constraint_state.owner[leaving].tolist()
            written = beam.each_length
            owners = [own[len(own) - written[row] :] for row, own in zip(rows.tolist(), owners, strict=True)]
            given = self.constraint_state.template_tokens[rows].tolist()
            hypotheses = (
                replace(one, owners=tuple(its_owners), given=its_given)
                for one, its_owners, its_given in zip(hypotheses, owners, given, strict=True)
            )
        for sentence, one in zip(beam.sentences[rows].tolist(), hypotheses, strict=True):
            self.found[sentence].append(one)

    def _may_improve(self, beam: Beam) -> Tensor:
        """Whether a sentence needs more hypotheses, or has one under way that may rank higher. Returns (S,).

        A hypothesis under way is ranked as if it ended at once with certainty, with the length of that step.
        With a length penalty a longer one may still rank higher, but to know that one would have to go on to
        the limit. The number of finished hypotheses alone says little: where the model is sure of itself,
        poor ones may end long before the best. Merging needs all it can get, since it adds probabilities.
        """
        settings, state = self.settings, self.constraint_state
        wanted = settings.beam if settings.merge else settings.n_best
        templates = [0] * len(beam.sentences) if state is None else state.template_tokens.tolist()
        best = [
            log_prob / length_divisor(written + 1 - template, settings)
            for log_prob, written, template in zip(
                beam.log_prob.amax(dim=1).tolist(), beam.each_length, templates, strict=True
            )
        ]
        finished = [self.found[sentence] for sentence in beam.sentences.tolist()]
        improving = [
            len(some) < wanted or sorted(one.ranked_by(settings) for one in some)[-wanted] < under_way
            for some, under_way in zip(finished, best, strict=True)
        ]
        return torch.tensor(improving, device=beam.log_prob.device)


def _with_steps(uniform: Tensor | None, rows: Tensor, steps: int) -> Tensor:
    """The numbers of some sentences, for at least so many steps."""
    assert uniform is not None, "strategies that join are of one kind"
    return functional.pad(uniform[rows], (0, 0, 0, 0, 0, steps - uniform.shape[1]))
