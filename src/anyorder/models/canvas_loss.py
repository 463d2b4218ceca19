"""What an Insertion Transformer learns from: partial targets, and the words that their gaps miss.

A random canvas keeps a random part of a target. The loss is the cross-entropy to the missing words, as one
distribution over all gaps and words. Its weights are those of the Insertion Transformer (Stern et al., 2019),
where each gap counts the same, or of the insertion language model (Patel et al., 2025), where each missing
word does. The latter is what random orders cost on average: whichever missing word were written next, all of
them count at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from anyorder import config
from anyorder.data.batches import Batch
from anyorder.models.decoder_state import SourceKeys
from anyorder.models.heads import at_least_float
from anyorder.models.insertion_transformer import FULL, InsertionTransformer, gap_scores, gaps_of
from anyorder.models.kernels.training import learned_part, word_scores
from anyorder.models.loss import Loss
from anyorder.text.tokenizer import BOS, EOS, PAD

# B targets, T tokens of the longest target, n tokens of the longest canvas, G = n - 1 gaps, M of them real,
# D width, V words


@dataclass(frozen=True)
class TrainingCanvas:
    """Partial targets to train on, and the gaps where the missing tokens belong."""

    words: Tensor  # (B, n), left to right, boundaries included
    lengths: Tensor  # (B,), boundaries included
    missing: Tensor  # (B, T), bool: tokens of the target that are not on the canvas
    gap: Tensor  # (B, T), the gap where a missing token belongs; undefined for the others

    @property
    def gaps(self) -> Tensor:
        """Real gaps of each canvas, (B, G), bool."""
        return gaps_of(self.words, self.lengths)

    def rows(self, chosen: Tensor) -> TrainingCanvas:
        """Select some canvases."""
        return TrainingCanvas(
            self.words[chosen], self.lengths[chosen], self.missing[chosen], self.gap[chosen]
        )

    def by_gap(self, values: Tensor) -> Tensor:
        """Sum the values of missing tokens by gap. values: (B, T); returns (B, G)."""
        sums = values.new_zeros(len(values), self.words.shape[1] - 1)
        return sums.scatter_add(1, self.gap, values * self.missing)

    def of_gap(self, values: Tensor) -> Tensor:
        """Give each missing token the value of its gap. values: (B, G); returns (B, T)."""
        return values.gather(1, self.gap)


def insertion_loss(model: InsertionTransformer, batch: Batch, *, label_smoothing: float = 0.0) -> Loss:
    """The mean loss of random canvases of each target, drawn by torch's global generator as dropout is."""
    sources = model.source_keys(model.encode(batch.source, batch.source_mask))
    part = learned_part()
    drawn_for = batch if part is None else part.whole
    assert isinstance(drawn_for, Batch), "only editors learn from drafts"
    canvases = draw_canvases(drawn_for.targets, drawn_for.lengths, canvases=model.insertion.canvases)
    if part is not None:
        canvases = [canvas.rows(part.sources) for canvas in canvases]
    losses = [
        canvas_loss(model, sources, batch, canvas, label_smoothing=label_smoothing) for canvas in canvases
    ]
    return Loss(
        objective=_mean([loss.objective for loss in losses]),
        word=_mean([loss.word for loss in losses]),
        gap=_mean([loss.gap for loss in losses]),
        words=losses[0].words,
        gaps=losses[0].gaps,
    )


def _mean(values: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(values)).mean()


def canvas_loss(
    model: InsertionTransformer,
    sources: list[SourceKeys],
    batch: Batch,
    canvas: TrainingCanvas,
    *,
    label_smoothing: float = 0.0,
) -> Loss:
    """The loss of one canvas of each target, times the T + 1 sizes that a canvas may have.

    So on average over canvases it is a sum over all steps of a target, as other models' losses are.
    """
    states = model.read(sources, canvas.words, canvas.lengths)
    scores = _scores(model, states.gaps, canvas.gaps)
    weights = batch.weights * (batch.lengths + 1)  # (B,)
    share = _gap_shares(canvas, model.insertion) * weights[:, None]  # (B, G)
    full = share * (canvas.by_gap(torch.ones_like(batch.targets)) == 0)
    of_words = word_weights(canvas, model.insertion) * canvas.of_gap(share)  # (B, T)

    wanted = (batch.targets - model.first).clamp(min=0)
    missing = _logits(states.gaps, canvas.gap, model.word_vectors, wanted)
    word = -(of_words * (missing - canvas.of_gap(scores.normaliser))).sum() - (full * scores.full).sum()
    uniform = -(share * scores.mean).sum()
    gap = -(share * scores.gap.masked_fill(~canvas.gaps, 0.0)).sum()
    if states.stop is not None:  # counted as position-first models count *finish*: where to write, or nowhere
        towards = torch.where(canvas.missing.any(dim=1), -states.stop, states.stop)
        gap = gap - (weights * logsigmoid(towards)).sum()
    return Loss(
        objective=(1 - label_smoothing) * word + label_smoothing * uniform + gap,
        word=word.detach(),
        gap=gap.detach(),
        words=float(weights.sum()),
        gaps=float(weights.sum()),
    )


@dataclass(frozen=True)
class _Scores:
    """Scores of each gap that the loss needs, zero where there is no gap. All: (B, G)."""

    full: Tensor  # log p of being full, given the gap; beside a classifier, of some word
    mean: Tensor  # mean log p over all words, given the gap
    normaliser: Tensor
    gap: Tensor  # log p


def _scores(model: InsertionTransformer, states: Tensor, gaps: Tensor) -> _Scores:
    """Score real gaps, with the large matrix of words in memory only once.

    states: (B, G, D); gaps: (B, G), bool.
    """
    real, vectors = states[gaps], model.word_vectors  # (M, D), (V, D)
    full, mean = word_scores(
        at_least_float(real @ vectors.mT), torch.full_like(gaps[gaps], FULL, dtype=torch.long)
    )
    # log p = logit - normaliser, and a single logit is a small product.
    normaliser = at_least_float(real @ vectors[FULL]) - full
    blank = torch.zeros(gaps.shape, dtype=full.dtype, device=full.device)
    full, mean, normaliser = (blank.masked_scatter(gaps, values) for values in (full, mean, normaliser))
    return _Scores(full=full, mean=mean, normaliser=normaliser, gap=gap_scores(normaliser, gaps))


def _logits(states: Tensor, gap: Tensor, vectors: Tensor, word: Tensor) -> Tensor:
    """Logits of some words in their gaps. states: (B, G, D); vectors: (V, D); gap, word, returns: (B, T)."""
    of_gaps = states.gather(1, gap[..., None].expand(-1, -1, states.shape[2]))  # (B, T, D)
    return at_least_float((of_gaps * vectors[word]).sum(dim=-1))


def _gap_shares(canvas: TrainingCanvas, insertion: config.Insertion) -> Tensor:
    """Weight of each gap in the loss, (B, G); those of a canvas sum to one, or to zero if no gap counts."""
    counted = canvas.gaps
    missing = canvas.by_gap(torch.ones_like(canvas.gap))
    if insertion.ends_by != "gap":
        # A gap without missing words counts only if all gaps are such, and then the sentence is finished.
        lacking = missing > 0
        finished = ~lacking.any(dim=1, keepdim=True) & (insertion.ends_by == "sequence")
        counted = counted & (lacking | finished)
    shares = counted * missing.clamp(min=1) if insertion.loss == "ilm" else counted
    return shares / shares.sum(dim=1, keepdim=True).clamp(min=1)  # a classifier says alone what is finished


def word_weights(canvas: TrainingCanvas, insertion: config.Insertion) -> Tensor:
    """Weight of each missing token in its gap, where they sum to one; (B, T), 0 for other tokens."""
    positions = torch.arange(canvas.gap.shape[1], device=canvas.gap.device, dtype=torch.float32)
    positions = positions.expand(canvas.gap.shape)
    size = canvas.by_gap(torch.ones_like(positions)).clamp(min=1)
    if insertion.loss != "binary":
        return canvas.of_gap(1 / size) * canvas.missing
    middle = canvas.by_gap(positions) / size
    # The nearest token gets distance 0, so that no temperature is too low to divide by.
    nearest = torch.where(size % 2 == 0, 0.5, 0.0)
    distance = (positions - canvas.of_gap(middle)).abs() - canvas.of_gap(nearest)
    weight = (-distance / insertion.temperature).exp() * canvas.missing
    return weight / canvas.of_gap(canvas.by_gap(weight)).where(canvas.missing, 1.0)


def draw_canvases(
    targets: Tensor, lengths: Tensor, *, canvases: int = 1, generator: torch.Generator | None = None
) -> list[TrainingCanvas]:
    """Draw random subsets of each target: their sizes uniformly, then the tokens uniformly.

    targets: (B, T), in sentence order; lengths: (B,); canvases: how many of each target. The sizes from 0 to
    T are cut into as many parts, and the first canvas has one of the first part, and so on. So together they
    are spread evenly, and little is padded, since all of about the same size are read together.
    """
    real = torch.arange(targets.shape[1], device=targets.device) < lengths[:, None]
    drawn = []
    for part in range(canvases):
        # On the CPU, so that the same seed draws the same on every device.
        chance = torch.rand(len(targets), targets.shape[1] + 1, generator=generator).to(targets.device)
        kept = ((part + chance[:, 0]) / canvases * (lengths + 1)).long().clamp(max=lengths)
        rank = chance[:, 1:].masked_fill(~real, 2.0).argsort(dim=1).argsort(dim=1)
        drawn.append(canvas_of(targets, lengths, rank < kept[:, None]))
    return drawn


def canvas_of(targets: Tensor, lengths: Tensor, kept: Tensor) -> TrainingCanvas:
    """Build the canvas of some tokens of each target. kept: (B, T), bool, False for padding."""
    before = kept.cumsum(dim=1)  # (B, T), kept tokens up to this one
    ends = kept.sum(dim=1, keepdim=True) + 1  # (B, 1), index of `</s>`
    longest = int(ends.max()) + 1
    beyond = torch.where(kept, before, longest)  # one more column for the other tokens, which is cut off
    words = targets.new_full((len(targets), longest + 1), PAD).scatter_(1, beyond, targets)
    words = words[:, :longest].scatter(1, ends, EOS)
    words[:, 0] = BOS
    real = torch.arange(targets.shape[1], device=targets.device) < lengths[:, None]
    return TrainingCanvas(words=words, lengths=ends.squeeze(1) + 1, missing=real & ~kept, gap=before)
