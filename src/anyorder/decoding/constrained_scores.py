"""The choices of a step, of which only those that keep to a canvas stay possible.

What can't be written has no probability, and the other choices share it: no ranking depends on it. But
required words, and going on where the sentence would have ended without them, cost what the model makes them:
so the best sentence is one in which they fit.

A model may never come to write a required word by itself. So what a choice is ranked by is another score than
what is paid: where the model wants to end, the share of the end goes to the words that are still missing; and
in a beam, whoever has written some of them is ahead of whoever has not, and must pay for them yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from anyorder.decoding.beam import Beam, Parents
from anyorder.decoding.constraint_state import AllowedSteps, ConstraintState
from anyorder.insertion import NEG_INF
from anyorder.models.kernels.vocabulary import Best
from anyorder.text.tokenizer import UNK

# S sentences under way, K hypotheses of each, F first choices, C of them looked at, N hypotheses asked for M
# second choices, G gaps, V words, Q given words that may come next, I items, A ways to go on with one

# Nats in a beam for each required token, about what it costs to write one: less if the encoder is told of it.
HEAD_START, TOLD_HEAD_START = 4.0, 2.5


# An end that is likelier, and ruled out, leaves too few digits of what the words share instead.
LIKELY = math.log(0.9)


class Scores(NamedTuple):
    """Of choices: what is paid for each, and what it is chosen by."""

    paid: Tensor  # log p
    chosen_by: Tensor

    @classmethod
    def plain(cls, log_probs: Tensor) -> Scores:
        """Both the same."""
        return cls(log_probs, log_probs)


class Ending(NamedTuple):
    """What a model makes of the end, whether it may end or not."""

    log_probs: Tensor  # (S, K)
    wanted: Tensor  # (S, K), bool: it is the likeliest first choice

    @classmethod
    def among(cls, scores: Tensor) -> Ending:
        """scores: (S, K, F), of all first choices."""
        return cls(scores[..., 0], scores[..., 0] >= scores[..., 1:].amax(dim=-1))


@dataclass(frozen=True)
class ConstrainedStep:
    """The next step's choices, of which only those that keep to the canvas stay possible."""

    constraint_state: ConstraintState
    beam: Beam
    allowed: AllowedSteps  # where every hypothesis may write
    first_word: int  # the id of the first word that is scored
    position_first: bool
    unknown: bool  # whether `<unk>` may be written where it is not given
    head_start: float  # for each required token that is written
    parents: Parents | None = None  # N hypotheses that are asked for second choices; None: all K

    @cached_property
    def standing(self) -> Tensor:
        """What hypotheses are ranked by, (S, K): log p, less what they must still pay for required tokens."""
        return self.beam.log_prob - self.head_start * self.constraint_state.required_left

    @cached_property
    def wanted(self) -> tuple[Tensor, Tensor]:
        """Given words that may come next, as word choices, (S, K, Q), and whether each counts; each once."""
        ids, counts = self.constraint_state.wanted()
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
        """Whether nothing is ruled out but the end, or everything but what is wanted: word first."""
        allowed = self.allowed
        free = allowed.whole.any(dim=2)
        if allowed.begun is not allowed.whole:
            free = free & allowed.begun.any(dim=2)
        return (
            self.unknown
            and not any(self.constraint_state.constraints.forbidden)
            and bool((free | allowed.forced | (self.beam.log_prob == NEG_INF)).all())
        )

    # --- what is chosen first ---

    def best_words(self, best: Best, wanted: Tensor, count: int) -> Best | None:
        """The best first choices where the restriction is simple.

        best: of all that may be chosen freely; wanted: (S, K, Q), log p of those that are wanted. None: an
        end that is ruled out is so likely that the rest can't be told from it.
        """
        choices, counts = self.wanted
        allowed = self.allowed
        shared = ~(allowed.end | allowed.lacking | allowed.forced)  # a word is unfinished, or a blank
        if bool(shared.any()):
            if bool((shared & (best.end > LIKELY)).any()):
                return None
            more = torch.where(shared, -torch.log1p(-best.end.exp()), 0.0)[..., None]
            best = best._replace(log_probs=best.log_probs + more, paid=best.paid + more)
        scores = self._priced(wanted.masked_fill(~counts, NEG_INF), ending=best.end)
        again = (best.choices[..., :, None] == choices[..., None, :]) & counts[..., None, :]
        out = again.any(dim=3) | allowed.forced[..., None]
        chosen_by = torch.cat([best.log_probs.masked_fill(out, NEG_INF), scores.chosen_by], dim=2)
        paid = torch.cat([best.paid.masked_fill(out, NEG_INF), scores.paid], dim=2)
        leading, indices = chosen_by.topk(min(count, chosen_by.shape[2]), dim=2)
        return Best(
            leading,
            torch.cat([best.choices, choices], dim=2).gather(2, indices),
            end=best.end.masked_fill(~allowed.end, NEG_INF),
            paid=paid.gather(2, indices),
        )

    def first(self, scores: Tensor) -> Scores:
        """log p of first choices, END the first of them. scores: (S, K, F)."""
        allowed = self.allowed
        if self.position_first:
            gaps = allowed.whole | allowed.begun | allowed.items.any(dim=2)
            gaps = torch.where(allowed.forced[..., None], allowed.beside, gaps)
            gaps = self._where_missing(gaps, Ending.among(scores).wanted)
            barred = torch.cat([~allowed.end[..., None], ~gaps], dim=2)
            return Scores.plain(self._shared(scores, barred))
        barred = self._barred_first_words(scores)
        paid = self._shared(scores, barred)
        return self._with_wanted(paid, ending=scores[..., 0])

    @property
    def counts_words(self) -> bool:
        """Whether some blank asks for a number of words."""
        return self.allowed.unfilled is not None

    def second(self, scores: Tensor, first: Tensor, *, ending: Ending | None) -> Scores:
        """log p of second choices after these first ones. scores: (S, N, C, M); first: (S, N, C).

        ending: may be left out, word first, where no words are counted.
        """
        if not self.position_first:
            barred = self._barred_gaps(first + self.first_word)
            if self.counts_words:
                assert ending is not None
                barred = ~self._where_missing(~barred, self._of(ending.wanted)[..., None])
            return Scores.plain(renormalised(scores, barred & (first != 0)[..., None]))  # the end has no gap
        assert ending is not None
        gap = (first - 1).clamp(min=0)
        return self._of_words_in(gap, scores, self._of(ending.log_probs))

    def _of(self, values: Tensor) -> Tensor:
        """What is theirs who are asked. values: (S, K, ...); returns (S, N, ...)."""
        return values if self.parents is None else self.parents.of(values)

    def _where_missing(self, gaps: Tensor, wants_end: Tensor) -> Tensor:
        """Possible gaps: where the model would end but for blanks with too few words, only those of these.

        Otherwise it would go on in blanks that it is done with. gaps: (S, N, ..., G); wants_end: (S, N, ...).
        """
        if self.allowed.unfilled is None:
            return gaps
        unfilled, lacking = self._of(self.allowed.unfilled), self._of(self.allowed.lacking)
        as_gaps = [1] * (gaps.dim() - 3)
        unfilled = gaps & unfilled.view(*unfilled.shape[:2], *as_gaps, -1)
        only_these = wants_end & ~lacking.view(*lacking.shape, *as_gaps)
        return torch.where((only_these & unfilled.any(dim=-1))[..., None], unfilled, gaps)

    def _shared(self, scores: Tensor, barred: Tensor) -> Tensor:
        """log p of first choices: what is barred is shared, but not an end that lacks something.

        scores, barred: (S, K, F).
        """
        allowed = self.allowed
        not_shared = torch.zeros_like(barred)
        not_shared[..., 0] = allowed.lacking & ~allowed.forced
        if not self.position_first:
            not_shared |= self.constraint_state.in_item[..., None]
        return renormalised(scores, barred, not_shared=not_shared)

    def _with_wanted(self, paid: Tensor, *, ending: Tensor) -> Scores:
        """paid: (S, K, V), of which the wanted words are chosen by other scores."""
        choices, counts = self.wanted
        if not choices.shape[2]:
            return Scores.plain(paid)
        of_wanted = paid.gather(2, choices).masked_fill(~counts, NEG_INF)
        priced = self._priced(of_wanted, ending=ending).chosen_by
        return Scores(paid, _scattered(paid, choices, counts, priced))

    def _priced(self, wanted: Tensor, *, ending: Tensor) -> Scores:
        """What wanted words are chosen by. wanted: (S, K, Q), log p."""
        if not self.constraint_state.any_in_template:
            return Scores(wanted, self._urged(wanted, ending[..., None]))
        in_template = self.constraint_state.in_template[:, None, None]
        paid = torch.where(in_template & (wanted > NEG_INF), 0.0, wanted)
        return Scores(paid, torch.where(in_template, paid, self._urged(paid, ending[..., None])))

    def _urged(self, paid: Tensor, ending: Tensor) -> Tensor:
        """Required words with the end's share and their head start. paid, ending: (S, N, ..., Q or 1)."""
        lacking = self._of(self.allowed.lacking & ~self.allowed.forced)
        boost = _boost(paid, ending).where(lacking.view(*lacking.shape, *[1] * (paid.dim() - 2)), 0.0)
        return paid + boost + self.head_start

    # --- word first ---

    def _barred_first_words(self, scores: Tensor) -> Tensor:
        allowed, ends = self.allowed, self.constraint_state.constraints.ends_word[self.first_word :]
        no_whole, no_begun = ~allowed.whole.any(dim=2), ~allowed.begun.any(dim=2)
        barred = torch.zeros_like(scores, dtype=torch.bool)
        if bool((no_whole | no_begun).any()):
            barred = torch.where(ends, no_whole[..., None], no_begun[..., None])
        for token, gaps in allowed.barred.items():
            possible = (
                allowed.whole if bool(self.constraint_state.constraints.ends_word[token]) else allowed.begun
            )
            barred[..., token - self.first_word] |= ~(possible & ~gaps).any(dim=2)
        barred = self._with_forbidden(barred)
        barred = _scattered(barred, *self.wanted, torch.tensor(False))
        barred[..., 0] = ~allowed.end
        return barred

    def _barred_gaps(self, words: Tensor) -> Tensor:
        """words: (S, N, C); returns (S, N, C, G)."""
        allowed = self.allowed
        possible = self._of(allowed.whole)[:, :, None]
        if allowed.begun is not allowed.whole:
            ends = self.constraint_state.constraints.ends(words)[..., None]
            possible = torch.where(ends, possible, self._of(allowed.begun)[:, :, None])
        for token, gaps in allowed.barred.items():
            possible = possible & ~((words == token)[..., None] & self._of(gaps)[:, :, None])
        possible = possible | self._gaps_of_items(words)
        forced, beside = self._of(allowed.forced), self._of(allowed.beside)
        return ~torch.where(forced[..., None, None], beside[:, :, None], possible)

    # --- position first ---

    def _of_words_in(self, gap: Tensor, scores: Tensor, ending: Tensor) -> Scores:
        """gap: (S, N, C); scores: (S, N, C, V); ending: (S, N)."""
        allowed, constraint_state = self.allowed, self.constraint_state
        whole, begun = (self._of(each).gather(2, gap)[..., None] for each in (allowed.whole, allowed.begun))
        barred = torch.where(constraint_state.constraints.ends_word[self.first_word :], ~whole, ~begun)
        for token, gaps in allowed.barred.items():
            barred[..., token - self.first_word] |= self._of(gaps).gather(2, gap)
        barred = self._with_forbidden(barred)
        choices, counts = (
            self._of(each)[:, :, None].expand(-1, -1, gap.shape[2], -1) for each in self.wanted
        )
        here = counts & self._wanted_in(gap)
        barred = _scattered(barred, choices, here, torch.tensor(False))
        not_shared = self._of(constraint_state.in_item)[..., None, None].expand_as(barred)
        paid = renormalised(scores, barred, not_shared=not_shared)
        if not choices.shape[3]:
            return Scores.plain(paid)
        # Given that it would not end, the words as they are; given that it would, those that are missing.
        of_wanted = paid.gather(3, choices).masked_fill(~here, NEG_INF)
        odds = ending - torch.log1p(-ending.exp().clamp(max=1 - 1e-6))
        in_template = constraint_state.in_template[:, None, None, None]
        priced = torch.where(in_template, of_wanted, self._urged(of_wanted, odds[..., None, None]))
        return Scores(paid, _scattered(paid, choices, here, priced))

    def _wanted_in(self, gap: Tensor) -> Tensor:
        """Which of the wanted words may go into gaps. gap: (S, N, C); returns (S, N, C, Q)."""
        allowed, choices = self.allowed, self._of(self.wanted[0])
        forced = allowed.beside & allowed.forced[..., None]  # (S, K, G)
        forced = self._of(forced).gather(2, gap)[..., None]  # (S, N, C, 1)
        gaps = self._gaps_of_items(choices + self.first_word)  # (S, N, Q, G)
        return forced | gaps.gather(3, gap[:, :, None].expand(-1, -1, choices.shape[2], -1)).transpose(2, 3)

    # --- both ---

    def _gaps_of_items(self, words: Tensor) -> Tensor:
        """Where each word would begin an item or go on with one. words: (S, N, C); returns (S, N, C, G)."""
        # Where an item is under way there is no gap to choose, so that all others go on from where they rest.
        next_tokens = self._of(self.constraint_state.next_tokens)[:, :, None]  # (S, N, 1, I, A)
        of_item = (words[..., None, None] == next_tokens).any(dim=4)  # (S, N, C, I)
        items = self._of(self.allowed.items)  # (S, N, I, G)
        gaps = torch.zeros(*words.shape, items.shape[3], dtype=torch.bool, device=words.device)
        for item in range(items.shape[2]):  # faster than to reduce over all at once
            gaps |= of_item[..., item, None] & items[:, :, None, item]
        return gaps

    def _with_forbidden(self, barred: Tensor) -> Tensor:
        """barred: (S, K, V) or (S, K, C, V)."""
        forbidden = self.constraint_state.barred_words()
        if forbidden is not None:
            barred = barred | forbidden[..., self.first_word :].view(
                len(barred), *[1] * (barred.dim() - 2), -1
            )
        if not self.unknown:
            barred = barred.clone()
            barred[..., UNK - self.first_word] = True
        return barred


def _boost(wanted: Tensor, ending: Tensor) -> Tensor:
    """What is added to log p of wanted words if they share the end's. wanted: (..., Q); ending: (..., 1)."""
    total = wanted.logsumexp(dim=-1, keepdim=True)
    return functional.softplus(ending - total.clamp(min=torch.finfo(total.dtype).min))


def _scattered(row: Tensor, choices: Tensor, counts: Tensor, values: Tensor) -> Tensor:
    """The same row with other values for those choices that count. row: (..., V); the others: (..., Q)."""
    # What does not count is written into a last column, which nobody reads.
    room = functional.pad(row, (0, 1))
    indices = choices.where(counts, row.shape[-1])
    return room.scatter(-1, indices, values.to(row).expand_as(indices))[..., :-1]


def renormalised(scores: Tensor, barred: Tensor, *, not_shared: Tensor | None = None) -> Tensor:
    """log p among what is not barred; untouched, to the last bit, where nothing is. All: (..., choices).

    not_shared: what is barred, but keeps its probability for itself.
    """
    if not bool(barred.any()):
        return scores
    shared = barred if not_shared is None else barred & ~not_shared
    some = shared.any(dim=-1, keepdim=True)
    possible = scores.masked_fill(shared, NEG_INF)
    among_possible = possible - possible.logsumexp(dim=-1, keepdim=True)
    return torch.where(some, among_possible, scores).masked_fill(barred, NEG_INF)
