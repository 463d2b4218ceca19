"""Decoding: from a source to finished hypotheses, by beam search or by chance.

Each step has a first and a second choice (word and gap, or gap and word). The searches differ in which
pairs of choices they look at; everything else is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from anyorder import config
from anyorder.decoding.beam import BOUNDARIES, Beam, TokenHypothesis
from anyorder.decoding.beam_search import Expansion, search_joint, search_two_step
from anyorder.decoding.constrained_scores import HEAD_START, TOLD_HEAD_START, ConstrainedStep
from anyorder.decoding.constraint_state import ConstraintState
from anyorder.decoding.constraints import Constraints
from anyorder.decoding.sampling import SAMPLED_AT_ONCE, _draws, sample
from anyorder.decoding.step_scorer import StepScorer
from anyorder.insertion import NEG_INF
from anyorder.models.encoder_decoder import Memory
from anyorder.models.indigo import Indigo


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
    """The best hypotheses of each source, best first.

    source, mask: as `Indigo.encode` takes them; limits: (sources,), most tokens to write. Sampling depends
    on the seed and on each source's number in `lines`, not on what else is in the batch. rules: of the
    canvases to write around; None: there are none.
    """
    memory = model.encode_sorted(source, mask, None if constraints is None else constraints.required)
    if settings.search != "sample":
        found = _written(model, memory, settings=settings, limits=limits, constraints=constraints)
        return [ranked(hypotheses, settings) for hypotheses in found]
    chance = _draws(settings, lines or range(len(source)), limits).to(source.device)
    parts = [
        _written(model, memory, settings=settings, limits=limits, constraints=constraints, chance=part)
        for part in chance.split(SAMPLED_AT_ONCE, dim=2)
    ]
    return [ranked(list(chain.from_iterable(of_source)), settings) for of_source in zip(*parts, strict=True)]


def _written(
    model: Indigo,
    memory: Memory,
    *,
    settings: config.Decode,
    limits: Tensor,
    constraints: Constraints | None,
    chance: Tensor | None = None,
) -> list[list[TokenHypothesis]]:
    """All hypotheses that were found for each source, in no order.

    chance: what samples are drawn by, (sources, steps, K, 2); None: by beams.
    """
    sampling, sources = chance is not None, len(memory.mask)
    found: list[list[TokenHypothesis]] = [[] for _ in range(sources)]
    decoder_state = model.start(memory)
    hypotheses = 1 if chance is None else chance.shape[2]
    beam = Beam.start(sources, hypotheses=hypotheses, device=memory.mask.device)
    constraint_state = None if constraints is None else ConstraintState.start(constraints, beam)
    head_start = 0.0 if sampling else _head_start(model)
    newest = beam.words
    while len(beam.sentences):
        given, constrained = None, None
        if constraint_state is not None:
            given = constraint_state.given(newest.shape[2])
            constrained = ConstrainedStep(
                constraint_state,
                beam,
                constraint_state.allowed(beam),
                first_word=model.word_head.first,
                position_first=model.position_first,
                unknown=settings.unknown,
                head_start=head_start,
            )
        state = model.advance(decoder_state, newest.flatten(0, 1), beam.indices.flatten(0, 1), given=given)
        scorer = StepScorer(
            model, decoder_state, state, beam, unknown=settings.unknown, constrained=constrained
        )
        if chance is not None:
            step = sample(scorer, chance[beam.sentences, beam.length], settings)
        elif settings.search == "joint":
            step = search_joint(scorer, settings.beam)
        else:
            step = search_two_step(scorer, settings.beam)
        full = beam.length >= limits.to(beam.sentences.device)[beam.sentences]
        _collect(model, beam, step, full=full, found=found, constraint_state=constraint_state)
        grown = _grow(model, beam, step)
        if settings.merge_partial:
            grown = grown.merged()
        promising = (grown.log_prob > NEG_INF).any(dim=1)
        if not sampling:
            promising &= _may_improve(grown, found, settings, given=constraint_state)
        staying = (~full & promising).nonzero().squeeze(1)
        decoder_state.follow(step.parent, staying)
        if constraint_state is not None and constrained is not None:
            word, gap = model.word_and_gap(step.first, step.second)
            constraint_state = constraint_state.grow(
                constrained.allowed, parent=step.parent, word=word, gap=gap.clamp(min=0)
            ).keep(staying)
        beam = grown.keep(staying)
        newest = beam.words[..., -1:]
    return found


def _head_start(model: Indigo) -> float:
    return HEAD_START if model.required_mark is None else TOLD_HEAD_START


# --- between the steps ---


def _collect(
    model: Indigo,
    beam: Beam,
    step: Expansion,
    *,
    full: Tensor,
    found: list[list[TokenHypothesis]],
    constraint_state: ConstraintState | None,
) -> None:
    """Take what ends here out of the beam, and what may not grow any more."""
    cut = full[:, None] & ~step.ends & (beam.log_prob > NEG_INF)
    leaving = step.ends | cut
    if not bool(leaving.any()):
        return
    rows = leaving.nonzero()[:, 0]
    ends = step.end_scores.masked_fill(~step.ends, NEG_INF)
    hypotheses = beam.hypotheses(leaving, ends=ends, end_is_word=not model.position_first)
    if constraint_state is not None:
        owners = constraint_state.owner[leaving][:, BOUNDARIES:].tolist()
        given = constraint_state.template_tokens[rows].tolist()
        hypotheses = (
            replace(one, owners=tuple(its_owners), given=its_template)
            for one, its_owners, its_template in zip(hypotheses, owners, given, strict=True)
        )
    for sentence, one in zip(beam.sentences[rows].tolist(), hypotheses, strict=True):
        found[sentence].append(one)


def _grow(model: Indigo, beam: Beam, step: Expansion) -> Beam:
    word, gap = model.word_and_gap(step.first, step.second)
    scores = (step.first_score, step.second_score)
    word_score, gap_score = reversed(scores) if model.position_first else scores
    return beam.grow(
        parent=step.parent,
        word=word,
        gap=gap.clamp(min=0),  # what ended has no gap, and its row is dead
        word_score=word_score,
        gap_score=gap_score,
        log_prob=step.log_prob,
    )


def _may_improve(
    beam: Beam, found: list[list[TokenHypothesis]], settings: config.Decode, *, given: ConstraintState | None
) -> Tensor:
    """Whether a sentence has too few finished hypotheses yet, or something under way that may rank higher.

    What is under way is ranked as if it ended at once for nothing, a step that its length counts too. With a
    length penalty, going on for longer may still rank higher: to know, one would have to go on to the limit.
    That a number of them is finished says little: where the model is sure of itself, poor ones may end long
    before the best. Merging needs as many as there can be, for their probabilities are added. Returns (S,).
    """
    wanted = settings.beam if settings.merge else settings.n_best
    templates = [0] * len(beam.sentences) if given is None else given.template_tokens.tolist()
    best = [
        log_prob / _length(beam.length + 1 - template, settings)
        for log_prob, template in zip(beam.log_prob.amax(dim=1).tolist(), templates, strict=True)
    ]
    improving = [
        len(finished) < wanted or sorted(_score(one, settings) for one in finished)[-wanted] < under_way
        for finished, under_way in zip((found[index] for index in beam.sentences.tolist()), best, strict=True)
    ]
    return torch.tensor(improving, device=beam.log_prob.device)


def _score(one: TokenHypothesis, settings: config.Decode) -> float:
    return one.merged_log_prob / _length(len(one.tokens) - one.given + one.finished, settings)


def _length(steps: int, settings: config.Decode) -> float:
    """What a log p of so many steps is divided by."""
    return float(max(1, steps) ** settings.length_penalty)


def ranked(hypotheses: list[TokenHypothesis], settings: config.Decode) -> list[TokenHypothesis]:
    """Best first: the finished before the cut, then by log p / steps ** length_penalty."""
    if settings.merge:
        hypotheses = _merged(hypotheses)
    scored = [replace(one, score=_score(one, settings)) for one in hypotheses]
    return sorted(scored, key=lambda one: (not one.finished, -one.score))[: settings.n_best]


def _merged(hypotheses: list[TokenHypothesis]) -> list[TokenHypothesis]:
    """One for each sentence, in its likeliest order, with the probability of all its orders found."""
    # Sampling may find the same way twice, which makes it no likelier.
    ways = {(one.finished, one.tokens, one.positions): one for one in hypotheses}
    groups: dict[tuple[bool, tuple[int, ...]], list[TokenHypothesis]] = {}
    for one in ways.values():
        groups.setdefault((one.finished, one.sentence), []).append(one)
    return [
        replace(
            max(group, key=lambda one: one.log_prob),
            merged_log_prob=float(np.logaddexp.reduce([one.merged_log_prob for one in group])),
        )
        for group in groups.values()
    ]
