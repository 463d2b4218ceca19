"""Two beam searches: in two steps as in the paper, or over word and gap at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from anyorder.decoding.beam import Parents
from anyorder.decoding.constrained_scores import Ending
from anyorder.decoding.step_scorer import StepScorer, leading_of
from anyorder.insertion import NEG_INF
from anyorder.models.indigo import END
from anyorder.models.kernels.vocabulary import Best


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
    log_prob: Tensor  # NEG_INF where there was nothing more to choose
    chosen_by: Tensor  # what ranks them, falling; another than log_prob only where something is required


# --- searches ---


def search_two_step(scorer: StepScorer, width: int) -> Expansion:
    """The paper's: the B best first choices overall, then all second ones of these, then the B best."""
    first, ending = scorer.best_first(width)  # (S, K, C)
    mass = (scorer.standing[..., None] + first.log_probs).flatten(1)
    mass, kept = mass.topk(min(width, mass.shape[1]), dim=1)  # (S, B)
    of_kept = first._replace(
        log_probs=first.log_probs.flatten(1).gather(1, kept)[..., None],
        choices=first.choices.flatten(1).gather(1, kept)[..., None],
        paid=first.paid.flatten(1).gather(1, kept)[..., None],
    )
    # Only these are asked for second choices: of a beam of five, five instead of twenty-five.
    parents = Parents(kept // first.choices.shape[2], among=first.choices.shape[1])
    return _expand(scorer, of_kept, mass[..., None], width, ending=ending, parents=parents)


def search_joint(scorer: StepScorer, width: int) -> Expansion:
    """The B best pairs of choices, exactly.

    log p(second) ≤ 0, so a first choice bounds all pairs with it: more of them are looked at until the best
    one left out can't reach the B found. (Position first, required words are chosen by more than their log p,
    and one in a gap that was left out may be missed.)
    """
    first_scores = scorer.first_scores()
    choices = first_scores.paid.shape[2]
    looked_at = 2 * width
    while True:
        looked_at = min(looked_at, choices)
        first = leading_of(first_scores, looked_at)
        mass = scorer.standing[..., None] + first.log_probs  # (S, K, C)
        expansion = _expand(scorer, first, mass, width, ending=scorer.ending)
        chosen_by = expansion.chosen_by
        worst = chosen_by[:, -1] if chosen_by.shape[1] == width else mass.new_tensor(NEG_INF)
        left_out = mass[..., -1].amax(dim=1)
        if looked_at == choices or bool((left_out <= worst).all()):
            break
        looked_at *= 2
    # Ending counts among the B best like any pair.
    end_mass = scorer.beam.log_prob + expansion.end_scores
    among_best = _best(torch.cat([chosen_by, end_mass], dim=1), width)[:, chosen_by.shape[1] :]
    return replace(expansion, ends=expansion.ends & among_best)


def _expand(
    scorer: StepScorer,
    first: Best,
    mass: Tensor,
    width: int,
    *,
    ending: Ending | None,
    parents: Parents | None = None,
) -> Expansion:
    """The B best pairs with these first choices. mass: (S, N, C), like them.

    ending, parents: as for `StepScorer.best_second`.
    """
    everybody = torch.arange(scorer.beam.log_prob.shape[1], device=mass.device)
    whose = everybody.expand(len(mass), -1) if parents is None else parents.hypotheses  # (S, N)
    second = scorer.best_second(first.choices, width, ending=ending, parents=parents)  # (S, N, C, M)
    pairs = (mass.masked_fill(first.choices == END, NEG_INF)[..., None] + second.log_probs).flatten(1)
    chosen_by, chosen = pairs.topk(min(width, pairs.shape[1]), dim=1)  # (S, B)
    choices, seconds = second.choices.shape[2:]
    parent = whose.gather(1, chosen // (choices * seconds))
    first_score = first.paid.flatten(1).gather(1, chosen // seconds)
    second_score = second.paid.flatten(1).gather(1, chosen)
    log_prob = scorer.beam.log_prob.gather(1, parent) + first_score + second_score
    may_end = (first.choices == END).any(dim=2)  # (S, N)
    ends = (may_end[..., None] & (whose[..., None] == everybody)).any(dim=1)  # (S, K)
    return Expansion(
        end_scores=first.end,
        ends=ends & (scorer.beam.log_prob + first.end > NEG_INF),
        parent=parent,
        first=first.choices.flatten(1).gather(1, chosen // seconds),
        second=second.choices.flatten(1).gather(1, chosen),
        first_score=first_score,
        second_score=second_score,
        log_prob=log_prob.where(chosen_by > NEG_INF, NEG_INF),
        chosen_by=chosen_by,
    )


def _best(scores: Tensor, width: int) -> Tensor:
    """True for the best of each sentence. scores: (S, ...); returns the same shape."""
    flat = scores.flatten(1)
    best = flat.topk(min(width, flat.shape[1]), dim=1).indices
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, best, True).view_as(scores)
