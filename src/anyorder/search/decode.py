"""Decoding: from a source to finished hypotheses, by beam search or by chance.

Each step has a first and a second choice (word and gap, or gap and word). The searches differ in which
pairs of choices they look at; everything else is shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from anyorder import config
from anyorder.network.encoder_decoder import Memory
from anyorder.network.model import END, Indigo, Writing
from anyorder.network.vocabulary import Best, best_of
from anyorder.search.beam import BOUNDARIES, DEAD, Beam, Hypothesis, Parents
from anyorder.search.constraints import Constraints, Rules
from anyorder.search.restriction import HEAD_START, TOLD_HEAD_START, Ending, Restriction, Scores
from anyorder.text.tokenizer import UNK

# S sentences under way, K hypotheses of each, B of them to go on with, R = S · K rows,
# F first choices, C of them looked at, N hypotheses asked for M second choices

SAMPLED_AT_ONCE = (
    8  # outputs of a source: more would mostly look at each other's tokens, which they never read
)
COLDEST = 1e-30  # what a temperature is at least: single precision has no smaller numbers to divide by


@dataclass(frozen=True)
class Expansion:
    """What a step does to a beam: which hypotheses end, and the B best ways to go on."""

    end_scores: Tensor  # (S, K), log p of ending
    ends: Tensor  # (S, K), bool
    parent: Tensor  # (S, B)
    first: Tensor  # (S, B), and so are the others
    second: Tensor
    first_score: Tensor
    second_score: Tensor
    log_mass: Tensor  # DEAD where there was nothing more to choose
    chosen_by: Tensor  # what ranks them, falling; another than log_mass only where something is required


@dataclass(frozen=True)
class Moment:
    """Everything that a search may ask about the next step."""

    model: Indigo
    writing: Writing
    state: Tensor  # (R, D), of the newest tokens
    beam: Beam
    unknown: bool = True  # whether `<unk>` may be written
    restriction: Restriction | None = None  # what a canvas leaves possible; None: everything

    @property
    def standing(self) -> Tensor:
        """What hypotheses are ranked by, (S, K)."""
        return self.beam.log_mass if self.restriction is None else self.restriction.standing

    def first_scores(self) -> Scores:
        """Of all first choices, (S, K, F)."""
        log_probs = self.first_log_probs
        if self.restriction is not None:
            return self.restriction.first(log_probs)
        return Scores.plain(log_probs if self.model.position_first else self._known(log_probs))

    @cached_property
    def first_log_probs(self) -> Tensor:
        """As the model has them, (S, K, F)."""
        scores = self.model.first_log_probs(self.writing, self.state, self.beam.places.flatten(0, 1))
        return scores.unflatten(0, self.beam.log_mass.shape)

    def best_first(self, count: int) -> tuple[Best, Ending | None]:
        """The best first choices, (S, K, C), and what second ones must know of the end."""
        if self.restriction is not None and self.model.lists_best_words and self.restriction.is_simple:
            listed, ending = self._best_words(self.restriction, count)
            if listed is not None:
                return listed, ending
        if not self._free(words=not self.model.position_first):
            return leading_of(self.first_scores(), count), self.ending
        best = self.model.best_first(self.writing, self.state, self.beam.places.flatten(0, 1), count=count)
        return Best(*(each.unflatten(0, self.beam.log_mass.shape) for each in best)), self.ending

    def _best_words(self, restriction: Restriction, count: int) -> tuple[Best | None, Ending]:
        words, _ = restriction.wanted
        best, wanted = self.model.best_words_and(
            self.writing,
            self.state,
            words.flatten(0, 1),
            no_end=~restriction.openings.end.flatten(),
            count=count,
        )
        shape = self.beam.log_mass.shape
        best = Best(*(each.unflatten(0, shape) for each in best))
        # Whether it may end or not: an end that is listed is its own equal.
        ending = Ending(best.end, wanted=best.end >= best.log_probs[..., 0])
        return restriction.best_words(best, wanted.unflatten(0, shape), count), ending

    @cached_property
    def ending(self) -> Ending | None:
        """What a restriction must know of the end to judge second choices; None: nothing."""
        if self.restriction is None or not (self.model.position_first or self.restriction.counts_words):
            return None
        return Ending.among(self.first_log_probs)

    def best_second(
        self, first: Tensor, count: int, *, ending: Ending | None, parents: Parents | None
    ) -> Best:
        """The best second choices after these first ones. first: (S, N, C); returns (S, N, C, M).

        ending: as it came with the first ones; parents: N hypotheses, whose these are; None: all K have some.
        """
        if not self._free(words=self.model.position_first):
            return leading_of(self.second_scores(first, ending=ending, parents=parents), count)
        best = self.model.best_second(*self._asked(parents), first.flatten(0, 1), count=count)
        return Best(*(each.unflatten(0, first.shape[:2]) for each in best))

    def _free(self, *, words: bool) -> bool:
        """Whether nothing that could be chosen is ruled out. words: whether the choice is one of words."""
        return self.restriction is None and (self.unknown or not words)

    def second_scores(
        self, first: Tensor, *, ending: Ending | None, parents: Parents | None = None
    ) -> Scores:
        """Of all second choices after these first ones, as `best_second` takes them; returns (S, N, C, M)."""
        scores = self.model.second_log_probs(*self._asked(parents), first.flatten(0, 1))
        scores = scores.unflatten(0, first.shape[:2])
        if self.restriction is not None:
            return replace(self.restriction, parents=parents).second(scores, first, ending=ending)
        return Scores.plain(self._known(scores) if self.model.position_first else scores)

    def _asked(self, parents: Parents | None) -> tuple[Writing, Tensor, Tensor]:
        """What a model must know of the hypotheses that are asked: writing, state and places."""
        places = self.beam.places.flatten(0, 1)
        if parents is None:
            return self.writing, self.state, places
        state, places = (each.index_select(0, parents.rows) for each in (self.state, places))
        return self.writing.seen_by(parents.hypotheses), state, places

    def _known(self, scores: Tensor) -> Tensor:
        """scores: (S, K, V) or (S, K, C, V), of which `<unk>` may be ruled out."""
        if not self.unknown:
            scores[..., UNK - self.model.word_head.first] = DEAD
        return scores

    def scores_of_second(self, first: Tensor, second: Tensor) -> Tensor:
        """log p of one second choice after each of these first ones, without all others. All: (S, K, C)."""
        places = self.beam.places.flatten(0, 1)
        scores = self.model.log_probs_of_second(
            self.writing, self.state, places, first.flatten(0, 1), second.flatten(0, 1)
        )
        return scores.unflatten(0, self.beam.log_mass.shape)


@torch.inference_mode()
def decode(
    model: Indigo,
    source: Tensor,
    mask: Tensor,
    *,
    settings: config.Decode,
    limits: Tensor,
    lines: Sequence[int] | None = None,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source, best first.

    source, mask: as `Indigo.encode` takes them; limits: (sources,), most tokens to write. Sampling depends
    on the seed and on each source's number in `lines`, not on what else is in the batch. rules: of the
    canvases to write around; None: there are none.
    """
    memory = model.encode_sorted(source, mask, None if rules is None else rules.required)
    if settings.search != "sample":
        found = _written(model, memory, settings=settings, limits=limits, rules=rules)
        return [ranked(hypotheses, settings) for hypotheses in found]
    chance = _draws(settings, lines or range(len(source)), limits).to(source.device)
    parts = [
        _written(model, memory, settings=settings, limits=limits, rules=rules, chance=part)
        for part in chance.split(SAMPLED_AT_ONCE, dim=2)
    ]
    return [ranked(list(chain.from_iterable(of_source)), settings) for of_source in zip(*parts, strict=True)]


def _written(
    model: Indigo,
    memory: Memory,
    *,
    settings: config.Decode,
    limits: Tensor,
    rules: Rules | None,
    chance: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """All hypotheses that were found for each source, in no order.

    chance: what samples are drawn by, (sources, steps, K, 2); None: by beams.
    """
    sampling, sources = chance is not None, len(memory.mask)
    found: list[list[Hypothesis]] = [[] for _ in range(sources)]
    writing = model.start(memory)
    hypotheses = 1 if chance is None else chance.shape[2]
    beam = Beam.start(sources, hypotheses=hypotheses, device=memory.mask.device)
    constraints = None if rules is None else Constraints.start(rules, beam)
    head_start = 0.0 if sampling else _head_start(model)
    newest = beam.words
    while len(beam.sentences):
        given, restriction = None, None
        if constraints is not None:
            given = constraints.given(newest.shape[2])
            restriction = Restriction(
                constraints,
                beam,
                constraints.openings(beam),
                first_word=model.word_head.first,
                position_first=model.position_first,
                unknown=settings.unknown,
                head_start=head_start,
            )
        state = model.advance(writing, newest.flatten(0, 1), beam.places.flatten(0, 1), given=given)
        moment = Moment(model, writing, state, beam, unknown=settings.unknown, restriction=restriction)
        if chance is not None:
            step = sample(moment, chance[beam.sentences, beam.length], settings)
        elif settings.search == "joint":
            step = search_joint(moment, settings.beam)
        else:
            step = search_two_step(moment, settings.beam)
        full = beam.length >= limits.to(beam.sentences.device)[beam.sentences]
        _collect(model, beam, step, full=full, found=found, constraints=constraints)
        grown = _grow(model, beam, step)
        if settings.merge_partial:
            grown = grown.merged()
        promising = (grown.log_mass > DEAD).any(dim=1)
        if not sampling:
            promising &= _may_improve(grown, found, settings, given=constraints)
        staying = (~full & promising).nonzero().squeeze(1)
        writing.follow(step.parent, staying)
        if constraints is not None and restriction is not None:
            word, gap = model.word_and_gap(step.first, step.second)
            constraints = constraints.grow(
                restriction.openings, parent=step.parent, word=word, gap=gap.clamp(min=0)
            ).keep(staying)
        beam = grown.keep(staying)
        newest = beam.words[..., -1:]
    return found


def _head_start(model: Indigo) -> float:
    return HEAD_START if model.required_mark is None else TOLD_HEAD_START


# --- searches ---


def search_two_step(moment: Moment, width: int) -> Expansion:
    """The paper's: the B best first choices overall, then all second ones of these, then the B best."""
    first, ending = moment.best_first(width)  # (S, K, C)
    mass = (moment.standing[..., None] + first.log_probs).flatten(1)
    mass, kept = mass.topk(min(width, mass.shape[1]), dim=1)  # (S, B)
    of_kept = first._replace(
        log_probs=first.log_probs.flatten(1).gather(1, kept)[..., None],
        choices=first.choices.flatten(1).gather(1, kept)[..., None],
        paid=first.paid.flatten(1).gather(1, kept)[..., None],
    )
    # Only these are asked for second choices: of a beam of five, five instead of twenty-five.
    parents = Parents(kept // first.choices.shape[2], among=first.choices.shape[1])
    return _expand(moment, of_kept, mass[..., None], width, ending=ending, parents=parents)


def search_joint(moment: Moment, width: int) -> Expansion:
    """The B best pairs of choices, exactly.

    log p(second) ≤ 0, so a first choice bounds all pairs with it: more of them are looked at until the best
    one left out can't reach the B found. (Position first, required words are chosen by more than their log p,
    and one in a gap that was left out may be missed.)
    """
    first_scores = moment.first_scores()
    choices = first_scores.paid.shape[2]
    looked_at = 2 * width
    while True:
        looked_at = min(looked_at, choices)
        first = leading_of(first_scores, looked_at)
        mass = moment.standing[..., None] + first.log_probs  # (S, K, C)
        expansion = _expand(moment, first, mass, width, ending=moment.ending)
        chosen_by = expansion.chosen_by
        worst = chosen_by[:, -1] if chosen_by.shape[1] == width else mass.new_tensor(DEAD)
        left_out = mass[..., -1].amax(dim=1)
        if looked_at == choices or bool((left_out <= worst).all()):
            break
        looked_at *= 2
    # Ending counts among the B best like any pair.
    end_mass = moment.beam.log_mass + expansion.end_scores
    among_best = _best(torch.cat([chosen_by, end_mass], dim=1), width)[:, chosen_by.shape[1] :]
    return replace(expansion, ends=expansion.ends & among_best)


def _expand(
    moment: Moment,
    first: Best,
    mass: Tensor,
    width: int,
    *,
    ending: Ending | None,
    parents: Parents | None = None,
) -> Expansion:
    """The B best pairs with these first choices. mass: (S, N, C), like them.

    ending, parents: as for `Moment.best_second`.
    """
    everybody = torch.arange(moment.beam.log_mass.shape[1], device=mass.device)
    whose = everybody.expand(len(mass), -1) if parents is None else parents.hypotheses  # (S, N)
    second = moment.best_second(first.choices, width, ending=ending, parents=parents)  # (S, N, C, M)
    pairs = (mass.masked_fill(first.choices == END, DEAD)[..., None] + second.log_probs).flatten(1)
    chosen_by, chosen = pairs.topk(min(width, pairs.shape[1]), dim=1)  # (S, B)
    choices, seconds = second.choices.shape[2:]
    parent = whose.gather(1, chosen // (choices * seconds))
    first_score = first.paid.flatten(1).gather(1, chosen // seconds)
    second_score = second.paid.flatten(1).gather(1, chosen)
    log_mass = moment.beam.log_mass.gather(1, parent) + first_score + second_score
    may_end = (first.choices == END).any(dim=2)  # (S, N)
    ends = (may_end[..., None] & (whose[..., None] == everybody)).any(dim=1)  # (S, K)
    return Expansion(
        end_scores=first.end,
        ends=ends & (moment.beam.log_mass + first.end > DEAD),
        parent=parent,
        first=first.choices.flatten(1).gather(1, chosen // seconds),
        second=second.choices.flatten(1).gather(1, chosen),
        first_score=first_score,
        second_score=second_score,
        log_mass=log_mass.where(chosen_by > DEAD, DEAD),
        chosen_by=chosen_by,
    )


def leading_of(scores: Scores, count: int) -> Best:
    """The best choices by what they are chosen by. scores: (..., M); returns (..., C)."""
    best = best_of(scores.chosen_by, count)
    return best._replace(end=scores.paid[..., END], paid=scores.paid.gather(-1, best.choices))


def _best(scores: Tensor, width: int) -> Tensor:
    """True for the best of each sentence. scores: (S, ...); returns the same shape."""
    flat = scores.flatten(1)
    best = flat.topk(min(width, flat.shape[1]), dim=1).indices
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, best, True).view_as(scores)


def sample(moment: Moment, chance: Tensor, settings: config.Decode) -> Expansion:
    """Each hypothesis goes its own way. chance: (S, K, 2), uniform in [0, 1)."""
    model, beam = moment.model, moment.beam
    first_scores = moment.first_scores()
    first = draw(
        first_scores.chosen_by if model.position_first else shortlisted(first_scores.chosen_by, settings),
        chance[..., 0],
        temperature=settings.temperature,
    )
    second_scores = moment.second_scores(first[..., None], ending=moment.ending)
    second_scores = Scores(*(each.squeeze(2) for each in second_scores))  # (S, K, M)
    second = draw(
        shortlisted(second_scores.chosen_by, settings) if model.position_first else second_scores.chosen_by,
        chance[..., 1],
        temperature=settings.temperature,
    )
    first_score = first_scores.paid.gather(2, first[..., None]).squeeze(2)
    second_score = second_scores.paid.gather(2, second[..., None]).squeeze(2)
    ends = (first == END) & (beam.log_mass > DEAD)
    log_mass = (beam.log_mass + first_score + second_score).masked_fill(first == END, DEAD)
    parent = torch.arange(first.shape[1], device=first.device).expand_as(first)
    return Expansion(
        end_scores=first_scores.paid[..., END],
        ends=ends,
        parent=parent,
        first=first,
        second=second,
        first_score=first_score,
        second_score=second_score,
        log_mass=log_mass,
        chosen_by=log_mass,
    )


def shortlisted(scores: Tensor, settings: config.Decode) -> Tensor:
    """Only the best words stay possible: the top k, the fewest that make up p. scores: (..., V), log p."""
    if settings.top_k:
        worst = scores.topk(min(settings.top_k, scores.shape[-1]), dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < worst, DEAD)
    if settings.top_p < 1:
        falling, words = (
            (scores / max(settings.temperature, COLDEST)).softmax(dim=-1).sort(dim=-1, descending=True)
        )
        before = falling.cumsum(dim=-1) - falling  # the word that crosses p still counts
        unlikely = torch.zeros_like(before, dtype=torch.bool).scatter_(-1, words, before >= settings.top_p)
        scores = scores.masked_fill(unlikely, DEAD)
    return scores


def draw(scores: Tensor, chance: Tensor, *, temperature: float) -> Tensor:
    """One index each, by inverting the cumulated probabilities. scores: (..., V), log p; chance: (...)."""
    # The best at 0, so that hardly a temperature is too low to divide by; below, it is the best anyway.
    relative = scores - scores.amax(dim=-1, keepdim=True)
    cumulated = (relative / max(temperature, COLDEST)).softmax(dim=-1).cumsum(dim=-1)
    wanted = chance[..., None] * cumulated[..., -1:]
    return torch.searchsorted(cumulated, wanted, right=True).squeeze(-1).clamp(max=scores.shape[-1] - 1)


def _draws(settings: config.Decode, lines: Sequence[int], limits: Tensor) -> Tensor:
    """A uniform number for each line, step, sample and choice, (lines, steps, K, 2)."""
    steps = int(limits.max()) + 1
    shape = (steps, settings.n_best, 2)
    drawn = [np.random.default_rng([settings.seed, line]).random(shape, dtype=np.float32) for line in lines]
    return torch.from_numpy(np.stack(drawn))


# --- between the steps ---


def _collect(
    model: Indigo,
    beam: Beam,
    step: Expansion,
    *,
    full: Tensor,
    found: list[list[Hypothesis]],
    constraints: Constraints | None,
) -> None:
    """Take what ends here out of the beam, and what may not grow any more."""
    cut = full[:, None] & ~step.ends & (beam.log_mass > DEAD)
    leaving = step.ends | cut
    if not bool(leaving.any()):
        return
    rows = leaving.nonzero()[:, 0]
    ends = step.end_scores.masked_fill(~step.ends, DEAD)
    hypotheses = beam.hypotheses(leaving, ends=ends, end_is_word=not model.position_first)
    if constraints is not None:
        owners = constraints.owner[leaving][:, BOUNDARIES:].tolist()
        given = constraints.template_tokens[rows].tolist()
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
        log_mass=step.log_mass,
    )


def _may_improve(
    beam: Beam, found: list[list[Hypothesis]], settings: config.Decode, *, given: Constraints | None
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
        mass / _length(beam.length + 1 - template, settings)
        for mass, template in zip(beam.log_mass.amax(dim=1).tolist(), templates, strict=True)
    ]
    improving = [
        len(finished) < wanted or sorted(_score(one, settings) for one in finished)[-wanted] < under_way
        for finished, under_way in zip((found[index] for index in beam.sentences.tolist()), best, strict=True)
    ]
    return torch.tensor(improving, device=beam.log_mass.device)


def _score(one: Hypothesis, settings: config.Decode) -> float:
    return one.log_mass / _length(len(one.tokens) - one.given + one.finished, settings)


def _length(steps: int, settings: config.Decode) -> float:
    """What a log p of so many steps is divided by."""
    return float(max(1, steps) ** settings.length_penalty)


def ranked(hypotheses: list[Hypothesis], settings: config.Decode) -> list[Hypothesis]:
    """Best first: the finished before the cut, then by log p / steps ** length_penalty."""
    if settings.merge:
        hypotheses = _merged(hypotheses)
    scored = [replace(one, score=_score(one, settings)) for one in hypotheses]
    return sorted(scored, key=lambda one: (not one.finished, -one.score))[: settings.n_best]


def _merged(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """One for each sentence, in its likeliest order, with the probability of all its orders found."""
    # Sampling may find the same way twice, which makes it no likelier.
    ways = {(one.finished, one.tokens, one.slots): one for one in hypotheses}
    groups: dict[tuple[bool, tuple[int, ...]], list[Hypothesis]] = {}
    for one in ways.values():
        groups.setdefault((one.finished, one.sentence), []).append(one)
    return [
        replace(
            max(group, key=lambda one: one.log_prob),
            log_mass=float(np.logaddexp.reduce([one.log_mass for one in group])),
        )
        for group in groups.values()
    ]
