"""Scores of the next step under constraints.

Choices that break a constraint get no probability, and the others share it. Required words keep the log p
that the model gives them, and so does going on where the sentence would have ended without them: the best
sentence is one into which they fit.

A model may never write a required word by itself. So choices are ranked by another score than their log p.
Where the model wants to end, the probability of the end goes to the required words that are still missing.
And a hypothesis that has written some of them gets a bonus over one that has not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.decoding.allowed import forbidden_tokens
from anyorder.decoding.beam import Beam, Parents
from anyorder.decoding.constraint_state import AllowedSteps, ConstraintState
from anyorder.decoding.step_scorer import EndScore, Scores
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import Indigo
from anyorder.models.kernels.vocabulary import TopChoices
from anyorder.text.tokenizer import UNK

# S sentences under way, K hypotheses of each, F first choices, C of them looked at, N hypotheses asked for M
# second choices, G gaps, V words, Q required tokens that may come next, I items, A ways to go on with one

# Rank bonus in nats for each required token written: about its cost, which is lower if the encoder reads it.
BONUS, BONUS_IF_READ = 4.0, 2.5
# If an end is likelier than this and ruled out, too few digits are left of what the words share instead.
LIKELY = math.log(0.9)


def required_bonus(model: Indigo) -> float:
    """Rank bonus of a beam for each required token that a hypothesis has written."""
    return BONUS if model.required_mark is None else BONUS_IF_READ


@dataclass(frozen=True)
class ConstrainedStep:
    """The next step of a beam, in which only choices that keep to the constraints are possible."""

    constraint_state: ConstraintState
    beam: Beam
    allowed: AllowedSteps
    first_word: int  # id of the first word that is scored
    position_first: bool
    unknown: bool  # whether `<unk>` may be written where it is not given
    bonus: float  # added to the rank for each required token written
    parents: Parents | None = None  # the N hypotheses whose second choices are scored; None: all K

    @cached_property
    def rank(self) -> Tensor:
        """What hypotheses are ranked by, (S, K): log p, less the bonus of required tokens still missing."""
        return self.beam.log_prob - self.bonus * self.constraint_state.required_left

    @cached_property
    def required_next(self) -> tuple[Tensor, Tensor]:
        """Required tokens that may come next, as word choices, (S, K, Q), and whether each counts."""
        ids, counts = self.constraint_state.required_next()
        choices = (ids - self.first_word).clamp(min=0)
        if not self.constraint_state.constraints.items.repeats:
            return choices, counts
        counts = counts.clone()
        for number in range(1, ids.shape[2]):
            again = (choices[..., :number] == choices[..., number, None]) & counts[..., :number]
            counts[..., number] &= ~again.any(dim=2)
        return choices, counts

    @property
    def is_simple(self) -> bool:
        """Whether only the end is ruled out, or everything but required tokens (word first)."""
        allowed = self.allowed
        free = allowed.whole.any(dim=2)
        if allowed.begun is not allowed.whole:
            free = free & allowed.begun.any(dim=2)
        return (
            self.unknown
            and not any(self.constraint_state.constraints.forbidden)
            and bool((free | allowed.forced | (self.beam.log_prob == NEG_INF)).all())
        )

    # --- first choices ---

    def top_words(self, best: TopChoices, required: Tensor, count: int) -> TopChoices | None:
        """The best first choices where `is_simple` holds.

        best: of all words without constraints; required: (S, K, Q), log p of `required_next`. Returns None if
        an end that is ruled out is so likely that rounding would decide among the rest.
        """
        choices, counts = self.required_next
        allowed = self.allowed
        shared = ~(allowed.end | allowed.lacking | allowed.forced)  # a word is unfinished, or a blank
        if bool(shared.any()):
            if bool((shared & (best.end > LIKELY)).any()):
                return None
            more = torch.where(shared, -torch.log1p(-best.end.exp()), 0.0)[..., None]
            best = best._replace(rank=best.rank + more, log_probs=best.log_probs + more)
        scores = self._required_scores(required.masked_fill(~counts, NEG_INF), end=best.end)
        repeated = (best.choices[..., :, None] == choices[..., None, :]) & counts[..., None, :]
        out = repeated.any(dim=3) | allowed.forced[..., None]
        rank = torch.cat([best.rank.masked_fill(out, NEG_INF), scores.rank], dim=2)
        log_probs = torch.cat([best.log_probs.masked_fill(out, NEG_INF), scores.log_probs], dim=2)
        rank, chosen = rank.topk(min(count, rank.shape[2]), dim=2)
        return TopChoices(
            rank,
            torch.cat([best.choices, choices], dim=2).gather(2, chosen),
            end=best.end.masked_fill(~allowed.end, NEG_INF),
            log_probs=log_probs.gather(2, chosen),
        )

    def first(self, scores: Tensor) -> Scores:
        """Scores of all first choices, from their log p without constraints. scores: (S, K, F)."""
        allowed = self.allowed
        if self.position_first:
            gaps = allowed.whole | allowed.begun | allowed.items.any(dim=2)
            gaps = torch.where(allowed.forced[..., None], allowed.forced_gap, gaps)
            gaps = self._prefer_unfilled(gaps, EndScore.among(scores).is_best)
            barred = torch.cat([~allowed.end[..., None], ~gaps], dim=2)
            return Scores.plain(self._share_barred(scores, barred))
        log_probs = self._share_barred(scores, self._barred_first_words(scores))
        choices, counts = self.required_next
        if not choices.shape[2]:
            return Scores.plain(log_probs)
        of_required = log_probs.gather(2, choices).masked_fill(~counts, NEG_INF)
        rank = self._required_scores(of_required, end=scores[..., 0]).rank
        return Scores(log_probs, _scatter_counted(log_probs, choices, counts, rank))

    # --- second choices ---

    @property
    def counts_words(self) -> bool:
        """Whether some blank counts its words."""
        return self.allowed.unfilled is not None

    def second(self, scores: Tensor, first: Tensor, *, end_score: EndScore | None) -> Scores:
        """Scores of second choices after these first ones. scores: (S, N, C, M), log p; first: (S, N, C).

        end_score: not needed word first, unless words are counted.
        """
        if not self.position_first:
            barred = self._barred_gaps(first + self.first_word)
            if self.counts_words:
                assert end_score is not None
                barred = ~self._prefer_unfilled(~barred, self._asked(end_score.is_best)[..., None])
            return Scores.plain(renormalise(scores, barred & (first != 0)[..., None]))  # the end has no gap
        assert end_score is not None
        gap = (first - 1).clamp(min=0)
        return self._words_in_gap(gap, scores, self._asked(end_score.log_probs))

    def _asked(self, values: Tensor) -> Tensor:
        """Select the values of the hypotheses that are asked. values: (S, K, ...); returns (S, N, ...)."""
        return values if self.parents is None else self.parents.select(values)

    # --- rank and probability ---

    def _prefer_unfilled(self, gaps: Tensor, end_is_best: Tensor) -> Tensor:
        """Where the model would end if no blank had too few words, allow only the gaps of these blanks.

        Otherwise it would go on in blanks that it is done with. gaps: (S, N, ..., G), bool; end_is_best:
        (S, N, ...).
        """
        if self.allowed.unfilled is None:
            return gaps
        unfilled, lacking = self._asked(self.allowed.unfilled), self._asked(self.allowed.lacking)
        as_gaps = [1] * (gaps.dim() - 3)
        unfilled = gaps & unfilled.view(*unfilled.shape[:2], *as_gaps, -1)
        only_these = end_is_best & ~lacking.view(*lacking.shape, *as_gaps)
        return torch.where((only_these & unfilled.any(dim=-1))[..., None], unfilled, gaps)

    def _share_barred(self, scores: Tensor, barred: Tensor) -> Tensor:
        """Share the probability of barred first choices, except that of an end while items are missing.

        scores, barred: (S, K, F).
        """
        allowed = self.allowed
        not_shared = torch.zeros_like(barred)
        not_shared[..., 0] = allowed.lacking & ~allowed.forced
        if not self.position_first:
            not_shared |= self.constraint_state.in_item[..., None]
        return renormalise(scores, barred, not_shared=not_shared)

    def _required_scores(self, log_probs: Tensor, *, end: Tensor) -> Scores:
        """Scores of required tokens. log_probs: (S, K, Q); end: (S, K), log p of the end."""
        if not self.constraint_state.any_in_template:
            return Scores(log_probs, self._required_rank(log_probs, end[..., None]))
        in_template = self.constraint_state.in_template[:, None, None]
        log_probs = torch.where(in_template & (log_probs > NEG_INF), 0.0, log_probs)
        rank = self._required_rank(log_probs, end[..., None])
        return Scores(log_probs, torch.where(in_template, log_probs, rank))

    def _required_rank(self, log_probs: Tensor, end: Tensor) -> Tensor:
        """Rank of required tokens: they get the end's share, and a bonus.

        log_probs: (S, N, ..., Q); end: (S, N, ..., 1), log p or log odds of the end.
        """
        lacking = self._asked(self.allowed.lacking & ~self.allowed.forced)
        lacking = lacking.view(*lacking.shape, *[1] * (log_probs.dim() - 2))
        return log_probs + _share_of_end(log_probs, end).where(lacking, 0.0) + self.bonus

    # --- word first ---

    def _barred_first_words(self, scores: Tensor) -> Tensor:
        """Words that have no gap to go into, and the end where it is barred. Returns (S, K, V), bool."""
        allowed, ends = self.allowed, self.constraint_state.constraints.ends_word
        no_whole, no_begun = ~allowed.whole.any(dim=2), ~allowed.begun.any(dim=2)
        barred = torch.zeros_like(scores, dtype=torch.bool)
        if bool((no_whole | no_begun).any()):
            barred = torch.where(ends[self.first_word :], no_whole[..., None], no_begun[..., None])
        for token, gaps in allowed.barred.items():
            possible = allowed.whole if bool(ends[token]) else allowed.begun
            barred[..., token - self.first_word] |= ~(possible & ~gaps).any(dim=2)
        barred = self._bar_forbidden(barred)
        barred = _scatter_counted(barred, *self.required_next, torch.tensor(False))
        barred[..., 0] = ~allowed.end
        return barred

    def _barred_gaps(self, words: Tensor) -> Tensor:
        """Gaps that each word must not go into. words: (S, N, C); returns (S, N, C, G), bool."""
        allowed = self.allowed
        possible = self._asked(allowed.whole)[:, :, None]
        if allowed.begun is not allowed.whole:
            ends = self.constraint_state.constraints.ends(words)[..., None]
            possible = torch.where(ends, possible, self._asked(allowed.begun)[:, :, None])
        for token, gaps in allowed.barred.items():
            possible = possible & ~((words == token)[..., None] & self._asked(gaps)[:, :, None])
        possible = possible | self._item_gaps(words)
        forced, forced_gap = self._asked(allowed.forced), self._asked(allowed.forced_gap)
        return ~torch.where(forced[..., None, None], forced_gap[:, :, None], possible)

    # --- position first ---

    def _words_in_gap(self, gap: Tensor, scores: Tensor, end: Tensor) -> Scores:
        """Scores of the words that may go into gaps. gap: (S, N, C); scores: (S, N, C, V); end: (S, N)."""
        allowed, state = self.allowed, self.constraint_state
        whole, begun = (
            self._asked(each).gather(2, gap)[..., None] for each in (allowed.whole, allowed.begun)
        )
        barred = torch.where(state.constraints.ends_word[self.first_word :], ~whole, ~begun)
        for token, gaps in allowed.barred.items():
            barred[..., token - self.first_word] |= self._asked(gaps).gather(2, gap)
        barred = self._bar_forbidden(barred)
        choices, counts = (
            self._asked(each)[:, :, None].expand(-1, -1, gap.shape[2], -1) for each in self.required_next
        )
        here = counts & self._required_in(gap)
        barred = _scatter_counted(barred, choices, here, torch.tensor(False))
        not_shared = self._asked(state.in_item)[..., None, None].expand_as(barred)
        log_probs = renormalise(scores, barred, not_shared=not_shared)
        if not choices.shape[3]:
            return Scores.plain(log_probs)
        # If the sentence would not end, words keep their log p; if it would, the missing ones get its share.
        of_required = log_probs.gather(3, choices).masked_fill(~here, NEG_INF)
        odds = end - torch.log1p(-end.exp().clamp(max=1 - 1e-6))
        in_template = state.in_template[:, None, None, None]
        rank = torch.where(in_template, of_required, self._required_rank(of_required, odds[..., None, None]))
        return Scores(log_probs, _scatter_counted(log_probs, choices, here, rank))

    def _required_in(self, gap: Tensor) -> Tensor:
        """Which required tokens may go into gaps. gap: (S, N, C); returns (S, N, C, Q), bool."""
        allowed, choices = self.allowed, self._asked(self.required_next[0])
        forced = allowed.forced_gap & allowed.forced[..., None]  # (S, K, G)
        forced = self._asked(forced).gather(2, gap)[..., None]  # (S, N, C, 1)
        gaps = self._item_gaps(choices + self.first_word)  # (S, N, Q, G)
        return forced | gaps.gather(3, gap[:, :, None].expand(-1, -1, choices.shape[2], -1)).transpose(2, 3)

    # --- word first and position first ---

    def _item_gaps(self, words: Tensor) -> Tensor:
        """Gaps in which words would begin or continue an item. words: (S, N, C); returns (S, N, C, G)."""
        # While an item is under way the gap is prescribed, so items can be taken from where they rest.
        next_tokens = self._asked(self.constraint_state.next_tokens)[:, :, None]  # (S, N, 1, I, A)
        of_item = (words[..., None, None] == next_tokens).any(dim=4)  # (S, N, C, I)
        items = self._asked(self.allowed.items)  # (S, N, I, G)
        gaps = torch.zeros(*words.shape, items.shape[3], dtype=torch.bool, device=words.device)
        for item in range(items.shape[2]):  # faster than one reduction over all items
            gaps |= of_item[..., item, None] & items[:, :, None, item]
        return gaps

    def _bar_forbidden(self, barred: Tensor) -> Tensor:
        """Bar forbidden words, and `<unk>` if it must not be written. barred: (S, K, V) or (S, K, C, V)."""
        forbidden = forbidden_tokens(self.constraint_state)
        if forbidden is not None:
            barred = barred | forbidden[..., self.first_word :].view(
                len(barred), *[1] * (barred.dim() - 2), -1
            )
        if not self.unknown:
            barred = barred.clone()
            barred[..., UNK - self.first_word] = True
        return barred


def _share_of_end(required: Tensor, end: Tensor) -> Tensor:
    """What the end's probability adds to log p of required tokens. required: (..., Q); end: (..., 1)."""
    total = required.logsumexp(dim=-1, keepdim=True)
    return functional.softplus(end - total.clamp(min=torch.finfo(total.dtype).min))


def _scatter_counted(row: Tensor, choices: Tensor, counts: Tensor, values: Tensor) -> Tensor:
    """Give the choices that count other values. row: (..., V); choices, counts, values: (..., Q)."""
    # Choices that don't count are written into one more column, which is cut off.
    room = functional.pad(row, (0, 1))
    columns = choices.where(counts, row.shape[-1])
    return room.scatter(-1, columns, values.to(row).expand_as(columns))[..., :-1]


def renormalise(scores: Tensor, barred: Tensor, *, not_shared: Tensor | None = None) -> Tensor:
    """log p among the choices that are not barred; where none is, to the last bit as it was. All: (..., M).

    not_shared: barred choices whose probability the others don't share.
    """
    if not bool(barred.any()):
        return scores
    shared = barred if not_shared is None else barred & ~not_shared
    some = shared.any(dim=-1, keepdim=True)
    possible = scores.masked_fill(shared, NEG_INF)
    among_possible = possible - possible.logsumexp(dim=-1, keepdim=True)
    return torch.where(some, among_possible, scores).masked_fill(barred, NEG_INF)
