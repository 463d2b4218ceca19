"""The choices of a step, of which only those that keep to a canvas stay possible.

A choice that would break the canvas has no probability, and the others share it: each step is a distribution
over what is possible there. So p of all completions adds up to one, and no ranking depends on what can't be
written anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from anyorder.beam import DEAD, Beam
from anyorder.constraints import Constraints, Openings

# S sentences under way, K hypotheses of each, G gaps, F first choices, C of them looked at, M second choices,
# V words, A given tokens that may come next


@dataclass(frozen=True)
class Restriction:
    """The next step's choices, of which only those that keep to the canvas stay possible."""

    constraints: Constraints
    beam: Beam
    first_word: int  # the id of the first word that is scored
    position_first: bool

    @cached_property
    def openings(self) -> Openings:
        """Where every hypothesis may write."""
        return self.constraints.openings(self.beam)

    @cached_property
    def barred_pieces(self) -> dict[int, Tensor]:
        """Gaps by token, (S, K, G)."""
        return self.constraints.barred_pieces(self.beam)

    def first(self, scores: Tensor) -> Tensor:
        """log p of first choices, END the first of them. scores: (S, K, F)."""
        if self.position_first:
            openings = self.openings
            return renormalised(
                scores, torch.cat([~openings.end[..., None], ~(openings.whole | openings.begun)], dim=2)
            )
        return renormalised(scores, self._barred_first_words(scores))

    def second(self, scores: Tensor, first: Tensor) -> Tensor:
        """log p of second choices after these first ones. scores: (S, K, C, M); first: (S, K, C)."""
        if self.position_first:
            return renormalised(scores, self._barred_second_words((first - 1).clamp(min=0)))
        barred = self._barred_gaps(first + self.first_word)
        return renormalised(scores, barred & (first != 0)[..., None])  # after the end there is no gap

    # --- word first ---

    def _barred_first_words(self, scores: Tensor) -> Tensor:
        openings, ends = self.openings, self.constraints.rules.ends_word[self.first_word :]
        no_whole, no_begun = ~openings.whole.any(dim=2), ~openings.begun.any(dim=2)
        barred = torch.zeros_like(scores, dtype=torch.bool)
        if bool((no_whole | no_begun).any()):
            barred = torch.where(ends, no_whole[..., None], no_begun[..., None])
        for token, gaps in self.barred_pieces.items():
            possible = openings.whole if bool(self.constraints.rules.ends_word[token]) else openings.begun
            barred[..., token - self.first_word] |= ~(possible & ~gaps).any(dim=2)
        barred = self._with_forbidden(barred)
        barred[..., 0] = ~openings.end
        return self._by_script(barred)

    def _barred_gaps(self, words: Tensor) -> Tensor:
        """words: (S, K, C); returns (S, K, C, G)."""
        ends = self.constraints.rules.ends(words)[..., None]
        barred = ~torch.where(ends, self.openings.whole[:, :, None], self.openings.begun[:, :, None])
        for token, gaps in self.barred_pieces.items():
            barred = barred | ((words == token)[..., None] & gaps[:, :, None])
        return barred

    # --- position first ---

    def _barred_second_words(self, gap: Tensor) -> Tensor:
        """gap: (S, K, C); returns (S, K, C, V)."""
        whole, begun = (each.gather(2, gap)[..., None] for each in (self.openings.whole, self.openings.begun))
        barred = torch.where(self.constraints.rules.ends_word[self.first_word :], ~whole, ~begun)
        for token, gaps in self.barred_pieces.items():
            barred[..., token - self.first_word] |= gaps.gather(2, gap)
        return self._by_script(self._with_forbidden(barred))

    # --- both ---

    def _with_forbidden(self, barred: Tensor) -> Tensor:
        """barred: (S, K, V) or (S, K, C, V)."""
        forbidden = self.constraints.barred_words()
        if forbidden is None:
            return barred
        return barred | forbidden[..., self.first_word :].view(len(barred), *[1] * (barred.dim() - 2), -1)

    def _by_script(self, barred: Tensor) -> Tensor:
        """Whoever has a script writes what that says. barred: (S, K, V) or (S, K, C, V)."""
        scripted = self.constraints.scripted
        if not bool(scripted.any()):
            return barred
        words = self.constraints.scripted_words()  # (S, K, A)
        unlisted = torch.ones(*words.shape[:2], barred.shape[-1], dtype=torch.bool, device=barred.device)
        unlisted.scatter_(2, (words - self.first_word).clamp(min=0), False)
        if barred.dim() > unlisted.dim():
            unlisted, scripted = unlisted[:, :, None], scripted[..., None]
        return torch.where(scripted[..., None], unlisted, barred)


def renormalised(scores: Tensor, barred: Tensor) -> Tensor:
    """log p among what is not barred; untouched, to the last bit, where nothing is. Both: (..., choices)."""
    some = barred.any(dim=-1, keepdim=True)
    if not bool(some.any()):
        return scores
    possible = scores.masked_fill(barred, DEAD)
    among_possible = possible - possible.logsumexp(dim=-1, keepdim=True)
    return torch.where(some, among_possible.masked_fill(barred, DEAD), scores)
