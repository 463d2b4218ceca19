"""Decoding with an Insertion Transformer: one word a step, or one into every gap that is not full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis, rank
from anyorder.insertion import NEG_INF
from anyorder.models.insertion_transformer import FIRST_WORD, FULL, Insertions, InsertionTransformer
from anyorder.text.tokenizer import BOS, EOS, PAD

# S sentences under way, n tokens of the longest canvas with its boundaries, G = n - 1 gaps


@dataclass(frozen=True)
class GapChoice:
    """What to write next into one canvas."""

    words: list[int]  # the best word of each gap
    filled: list[int]  # gaps to write into, left to right; none ends the sentence
    word_scores: list[float]
    gap_scores: list[float]
    end_score: float  # log p of ending here

    def likeliest(self, room: int) -> list[int]:
        """Gaps to write into, left to right; if there is no room for all, those of the likeliest words."""
        return sorted(sorted(self.filled, key=lambda gap: -self.word_scores[gap])[:room])


@dataclass
class Draft:
    """A sentence under way. Tokens are numbered in the order written."""

    words: list[int] = field(default_factory=list)
    word_scores: list[float] = field(default_factory=list)
    gap_scores: list[float] = field(default_factory=list)
    canvas: list[int] = field(default_factory=list)  # tokens from left to right, without the boundaries
    iterations: int = 0

    def read(self) -> list[int]:
        """Words on the canvas from left to right, with the boundaries."""
        return [BOS, *(self.words[token] for token in self.canvas), EOS]

    def write(self, choice: GapChoice, *, room: int) -> None:
        """Write all chosen words, from left to right, but no more than there is room for."""
        for before, gap in enumerate(choice.likeliest(room)):
            self.canvas.insert(gap + before, len(self.words))
            self.words.append(choice.words[gap])
            self.word_scores.append(choice.word_scores[gap])
            self.gap_scores.append(choice.gap_scores[gap])
        self.iterations += 1

    def hypothesis(self, *, end_score: float | None) -> TokenHypothesis:
        """Return the sentence as a hypothesis; it is finished if it has an end score."""
        position_of = {token: position for position, token in enumerate(self.canvas, start=1)}
        word_scores = self.word_scores if end_score is None else [*self.word_scores, end_score]
        log_prob = sum(word_scores) + sum(self.gap_scores)
        return TokenHypothesis(
            tokens=tuple(self.words),
            positions=tuple(position_of[token] for token in range(len(self.words))),
            word_scores=tuple(word_scores),
            gap_scores=tuple(self.gap_scores),
            finished=end_score is not None,
            merged_log_prob=log_prob,
            score=log_prob,
            iterations=self.iterations,
        )


@torch.inference_mode()
def decode_insertions(
    model: InsertionTransformer,
    source: Tensor,
    mask: Tensor,
    *,
    settings: config.Decode,
    limits: Tensor,
) -> list[list[TokenHypothesis]]:
    """Decode one hypothesis for each source.

    source, mask: as `encode` takes them; limits: (sources,), most tokens to write.
    """
    drafts = [Draft() for _ in range(len(source))]
    found: list[list[TokenHypothesis]] = [[] for _ in drafts]
    sources = model.source_keys(model.encode(source, mask))
    under_way = list(range(len(drafts)))
    while under_way:
        words, lengths = _canvases([drafts[number] for number in under_way], device=source.device)
        likely = model.insertions(sources, words, lengths)
        choices = choose(likely, termination=model.insertion.termination, settings=settings)
        staying = []
        for row, (number, choice) in enumerate(zip(under_way, choices, strict=True)):
            draft = drafts[number]
            room = int(limits[number]) - len(draft.words)
            if choice.filled and room > 0:
                draft.write(choice, room=room)
                staying.append(row)
            else:
                end_score = None if choice.filled else choice.end_score
                found[number] = rank([draft.hypothesis(end_score=end_score)], settings)
        if len(staying) < len(under_way):
            kept = torch.tensor(staying, dtype=torch.long, device=source.device)
            sources = [one.keep(kept) for one in sources]
            under_way = [under_way[row] for row in staying]
    return found


def choose(found: Insertions, *, termination: str, settings: config.Decode) -> list[GapChoice]:
    """The best insertion of each canvas, or in parallel the best of each gap that is not full.

    Greedily, a step's probability is that of a word and a gap, and that of ending the sum over all gaps. In
    parallel each gap decides by itself: only the word's probability counts, and ending takes all gaps.
    """
    best = found.logits[..., FULL + 1 :].max(dim=-1)  # (S, G)
    full = found.logits[..., FULL] - settings.eos_penalty
    full_score = found.logits[..., FULL] - found.normaliser
    real = found.gap > NEG_INF
    fillable = real & (best.values > full)
    if settings.parallel:
        filled, gap_score = fillable, torch.zeros_like(found.gap)
        end_score = full_score.masked_fill(~real, 0.0).sum(dim=1)
    else:
        # Where no gap says that it is full, the end of the sentence competes with the words of all gaps.
        competing = fillable if termination == "gap" else real
        scores = found.gap - found.normaliser + torch.maximum(best.values, full)
        chosen = scores.masked_fill(~competing, NEG_INF).argmax(dim=1, keepdim=True)
        filled = torch.zeros_like(fillable).scatter_(1, chosen, True) & fillable
        gap_score = found.gap
        end_score = (found.gap + full_score).logsumexp(dim=1)
    rows = zip(
        (best.indices + FIRST_WORD + FULL + 1).tolist(),
        [[gap for gap, chosen in enumerate(row) if chosen] for row in filled.tolist()],
        (best.values - found.normaliser).tolist(),
        gap_score.tolist(),
        end_score.tolist(),
        strict=True,
    )
    return [GapChoice(*row) for row in rows]


def _canvases(drafts: Sequence[Draft], *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Words of the canvases, (S, n), padded, and their lengths, (S,)."""
    read = [draft.read() for draft in drafts]
    longest = max(map(len, read))
    padded = [words + [PAD] * (longest - len(words)) for words in read]
    return torch.tensor(padded, device=device), torch.tensor([len(words) for words in read], device=device)
