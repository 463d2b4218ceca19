"""The Insertion Transformer (Stern et al., 2019), to compare with: the network and its loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Batch
from anyorder.insertion import NEG_INF
from anyorder.models.decoder_state import SourceKeys
from anyorder.models.encoder_decoder import EncoderDecoder, initialise, sinusoids
from anyorder.models.heads import at_least_float
from anyorder.models.kernels.training import word_scores
from anyorder.models.loss import Loss
from anyorder.text.tokenizer import BOS, EOD, EOS, PAD

# B sentences, n tokens of the longest canvas with its boundaries, G = n - 1 gaps, D width, V words

FIRST_WORD = EOD  # the lowest id that is predicted; words count from it
FULL = 0  # the first word, `<eod>`: nothing more goes into this gap


@dataclass(frozen=True)
class Insertions:
    """Probabilities of all insertions into a canvas: p(word, gap) = p(gap) p(word | gap)."""

    logits: Tensor  # (B, G, V)
    normaliser: Tensor  # (B, G), log of the sum over the words of each gap
    gap: Tensor  # (B, G), log p; NEG_INF where a shorter canvas has no gap


class InsertionTransformer(EncoderDecoder):
    """The Insertion Transformer with a joint distribution over words and gaps."""

    def __init__(self, settings: config.Model, insertion: config.Insertion, shape: Shape) -> None:
        super().__init__(settings, shape, kinds=0)
        self.insertion = insertion
        self.join = nn.Linear(2 * settings.width, settings.width)
        self.apply(initialise)

    def insertions(self, sources: list[SourceKeys], words: Tensor, lengths: Tensor) -> Insertions:
        """Score all insertions. sources: `source_keys`; words: (B, n), with boundaries; lengths: (B,)."""
        logits = at_least_float(self.gap_states(sources, words, lengths) @ self.word_vectors.mT)
        normaliser = logits.logsumexp(dim=-1)
        gap = gap_scores(normaliser, gaps_of(words, lengths))
        return Insertions(logits=logits, normaliser=normaliser, gap=gap)

    def gap_states(self, sources: list[SourceKeys], words: Tensor, lengths: Tensor) -> Tensor:
        """State of each gap, (B, G, D); its product with `word_vectors` gives the logits of its words."""
        indices = torch.arange(words.shape[1], device=words.device)
        blocked = (indices >= lengths[:, None])[:, None, None, :]  # (B, 1, 1, n)
        embedded = self.scaled_embedding(words)
        states = self.dropout(embedded + sinusoids(words.shape[1], self.settings.width).to(embedded))
        for layer, source in zip(self.decoder, sources, strict=True):
            states = layer(states, relations=None, blocked=blocked, source=source)
        states = self.decoder_norm(states)
        return self.join(torch.cat([states[:, :-1], states[:, 1:]], dim=-1))

    @property
    def word_vectors(self) -> Tensor:
        """Embedding of the words that can be predicted, (V, D)."""
        return self.output_embedding[FIRST_WORD:]


def gaps_of(words: Tensor, lengths: Tensor) -> Tensor:
    """Mark the gaps of each canvas, (B, G), bool. words: (B, n), lengths: (B,), with boundaries."""
    return torch.arange(words.shape[1] - 1, device=words.device) < lengths[:, None] - 1


def gap_scores(normaliser: Tensor, gaps: Tensor) -> Tensor:
    """log p of each gap: one softmax over all words of all gaps. normaliser, gaps, returns: (B, G)."""
    return normaliser.masked_fill(~gaps, NEG_INF).log_softmax(dim=-1)


# B batch, T tokens of the longest target, n tokens of the longest canvas, G = n - 1 gaps, M of them real,
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

    def by_gap(self, values: Tensor) -> Tensor:
        """Sum the values of missing tokens by gap. values: (B, T); returns (B, G)."""
        sums = values.new_zeros(len(values), self.words.shape[1] - 1)
        return sums.scatter_add(1, self.gap, values * self.missing)

    def of_gap(self, values: Tensor) -> Tensor:
        """Give each missing token the value of its gap. values: (B, G); returns (B, T)."""
        return values.gather(1, self.gap)


def insertion_loss(model: InsertionTransformer, batch: Batch, *, label_smoothing: float = 0.0) -> Loss:
    """The loss of one random canvas a target, drawn by torch's global generator as dropout is."""
    canvas = draw_canvas(batch.targets, batch.lengths)
    return canvas_loss(model, batch, canvas, label_smoothing=label_smoothing)


def canvas_loss(
    model: InsertionTransformer, batch: Batch, canvas: TrainingCanvas, *, label_smoothing: float = 0.0
) -> Loss:
    """The mean over a canvas's gaps, times the T + 1 sizes that a canvas may have.

    So on average over canvases it is a sum over all steps of a target, as other models' losses are.
    """
    sources = model.source_keys(model.encode(batch.source, batch.source_mask))
    states = model.gap_states(sources, canvas.words, canvas.lengths)  # (B, G, D)
    scores = _scores(model, states, canvas.gaps)
    share = _gap_shares(canvas, model.insertion) * (batch.weights * (batch.lengths + 1))[:, None]  # (B, G)
    full = share * (canvas.by_gap(torch.ones_like(batch.targets)) == 0)
    of_words = word_weights(canvas, model.insertion) * canvas.of_gap(share)  # (B, T)

    missing = _logits(states, canvas.gap, model.word_vectors, (batch.targets - FIRST_WORD).clamp(min=0))
    word = -(of_words * (missing - canvas.of_gap(scores.normaliser))).sum() - (full * scores.full).sum()
    uniform = -(share * scores.mean).sum()
    gap = -(share * scores.gap.masked_fill(~canvas.gaps, 0.0)).sum()
    return Loss(
        objective=(1 - label_smoothing) * word + label_smoothing * uniform + gap,
        word=word.detach(),
        gap=gap.detach(),
        words=float(share.sum()),
        gaps=float(share.sum()),
    )


@dataclass(frozen=True)
class _Scores:
    """Scores of each gap that the loss needs, zero where there is no gap. All: (B, G)."""

    full: Tensor  # log p of being full, given the gap
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
    """Weight of each gap in the loss; the gaps of a canvas sum to one. Returns (B, G)."""
    counted = canvas.gaps
    if insertion.termination == "sequence":
        # A gap without missing words counts only if all gaps are such: then the sentence is finished.
        lacking = canvas.by_gap(torch.ones_like(canvas.gap)) > 0
        counted = counted & (lacking | ~lacking.any(dim=1, keepdim=True))
    return counted / counted.sum(dim=1, keepdim=True)


def word_weights(canvas: TrainingCanvas, insertion: config.Insertion) -> Tensor:
    """Weight of each missing token in its gap, where they sum to one; (B, T), 0 for other tokens."""
    positions = torch.arange(canvas.gap.shape[1], device=canvas.gap.device, dtype=torch.float32)
    positions = positions.expand(canvas.gap.shape)
    size = canvas.by_gap(torch.ones_like(positions)).clamp(min=1)
    if insertion.loss == "uniform":
        return canvas.of_gap(1 / size) * canvas.missing
    middle = canvas.by_gap(positions) / size
    # The nearest token gets distance 0, so that no temperature is too low to divide by.
    nearest = torch.where(size % 2 == 0, 0.5, 0.0)
    distance = (positions - canvas.of_gap(middle)).abs() - canvas.of_gap(nearest)
    weight = (-distance / insertion.temperature).exp() * canvas.missing
    return weight / canvas.of_gap(canvas.by_gap(weight)).where(canvas.missing, 1.0)


def draw_canvas(
    targets: Tensor, lengths: Tensor, *, generator: torch.Generator | None = None
) -> TrainingCanvas:
    """Draw a random subset of each target: its size uniformly, then the tokens uniformly.

    targets: (B, T), in sentence order; lengths: (B,).
    """
    # On the CPU, so that the same seed draws the same on every device.
    chance = torch.rand(len(targets), targets.shape[1] + 1, generator=generator).to(targets.device)
    kept = (chance[:, 0] * (lengths + 1)).long()
    real = torch.arange(targets.shape[1], device=targets.device) < lengths[:, None]
    rank = chance[:, 1:].masked_fill(~real, 2.0).argsort(dim=1).argsort(dim=1)
    return canvas_of(targets, lengths, rank < kept[:, None])


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
