"""Decoding with an Insertion Transformer: one word a step, or one into every gap that is not full.

Words are chosen greedily or drawn at random; each step reads the whole canvas again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from anyorder import config
from anyorder.decoding.beam import TokenHypothesis, rank
from anyorder.decoding.sampling import SAMPLED_AT_ONCE, draw, truncate, uniform_numbers
from anyorder.insertion import NEG_INF
from anyorder.models.decoder_state import SourceKeys
from anyorder.models.insertion_transformer import FIRST_WORD, FULL, Insertions, InsertionTransformer
from anyorder.text.tokenizer import BOS, EOS, PAD

# S sentences under way, n tokens of the longest canvas with its boundaries, G = n - 1 gaps, V words,
# K samples of each source

NO_MARGIN = -1e4  # its logarithm, by which a gap still has a score


@dataclass(frozen=True)
class GapChoice:
    """What to write next into one canvas."""

    words: list[int]  # the chosen word of each gap
    filled: list[int]  # gaps to write into, left to right; none ends the sentence
    word_scores: list[float]
    gap_scores: list[float]
    end_score: float  # log p of ending here
    end_is_word: bool  # `<eod>` is a word of the gaps; a classifier counts as the choice of a gap

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

    def hypothesis(self, choice: GapChoice) -> TokenHypothesis:
        """Return the sentence as a hypothesis; it is finished if the choice was to write nothing more."""
        position_of = {token: position for position, token in enumerate(self.canvas, start=1)}
        finished = not choice.filled
        word_scores, gap_scores = list(self.word_scores), list(self.gap_scores)
        if finished:
            (word_scores if choice.end_is_word else gap_scores).append(choice.end_score)
        log_prob = sum(word_scores) + sum(gap_scores)
        return TokenHypothesis(
            tokens=tuple(self.words),
            positions=tuple(position_of[token] for token in range(len(self.words))),
            word_scores=tuple(word_scores),
            gap_scores=tuple(gap_scores),
            finished=finished,
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
    lines: Sequence[int] | None = None,
) -> list[list[TokenHypothesis]]:
    """Decode one hypothesis for each source, or draw several.

    source, mask: as `encode` takes them; limits: (sources,), most tokens to write. Sampling depends on the
    seed and on each source's number in `lines`, not on what else is in the batch.
    """
    sources = model.source_keys(model.encode_sorted(source, mask))
    if settings.search != "sample":
        return [rank(found, settings) for found in _written(model, sources, settings, limits, None)]
    uniform = uniform_numbers(settings, lines or range(len(source)), limits).to(source.device)
    found: list[list[TokenHypothesis]] = [[] for _ in range(len(source))]
    for part in uniform.split(SAMPLED_AT_ONCE, dim=2):
        for drawn, more in zip(found, _written(model, sources, settings, limits, part), strict=True):
            drawn += more
    return [rank(drawn, settings) for drawn in found]


def _written(
    model: InsertionTransformer,
    sources: list[SourceKeys],
    settings: config.Decode,
    limits: Tensor,
    uniform: Tensor | None,
) -> list[list[TokenHypothesis]]:
    """Write one sentence of each source, or K by random numbers. uniform: (sources, steps, K, 2)."""
    each = 1 if uniform is None else uniform.shape[2]
    rows = torch.arange(len(limits), device=sources[0].key.device).repeat_interleave(each)
    if uniform is not None:
        sources = [one.keep(rows) for one in sources]
        uniform = uniform.transpose(1, 2).flatten(0, 1)  # (sources · K, steps, 2)
    drafts = [Draft() for _ in rows]
    most = limits.repeat_interleave(each).tolist()
    found: list[list[TokenHypothesis]] = [[] for _ in limits]
    under_way = list(range(len(drafts)))
    step = 0
    while under_way:
        words, lengths = _canvases([drafts[number] for number in under_way], device=rows.device)
        likely = model.insertions(sources, words, lengths)
        if uniform is None:
            choices = choose(likely, ends_by=model.insertion.ends_by, settings=settings)
        else:
            choices = draw_choices(likely, uniform[under_way, step], settings=settings)
        staying = []
        for row, (number, choice) in enumerate(zip(under_way, choices, strict=True)):
            draft = drafts[number]
            room = most[number] - len(draft.words)
            if choice.filled and room > 0:
                draft.write(choice, room=room)
                staying.append(row)
            else:
                found[number // each].append(draft.hypothesis(choice))
        if len(staying) < len(under_way):
            kept = torch.tensor(staying, dtype=torch.long, device=rows.device)
            sources = [one.keep(kept) for one in sources]
            under_way = [under_way[row] for row in staying]
        step += 1
    return found


def choose(found: Insertions, *, ends_by: str, settings: config.Decode) -> list[GapChoice]:
    """The best insertion of each canvas, or in parallel the best of each gap that is not full.

    Greedily, a step's probability is that of a word and a gap, and that of ending the sum over all gaps, or
    the classifier's. In parallel each gap decides by itself: only the word's probability counts, and ending
    takes all gaps.
    """
    best = found.logits[..., FULL + 1 :].max(dim=-1)  # (S, G)
    full = found.logits[..., FULL] - settings.eos_penalty
    real = found.gap > NEG_INF
    fillable = real & (best.values > full)
    if settings.parallel:
        filled, gap_score = fillable, torch.zeros_like(found.gap)
        full_score = found.logits[..., FULL] - found.normaliser
        end_score = full_score.masked_fill(~real, 0.0).sum(dim=1)
    else:
        gap_score, end_score = _gaps_and_end(found)
        # Where no gap says that it is full, the end of the sentence competes with the words of all gaps.
        competing = fillable if ends_by == "gap" else real
        scores = found.gap + _confidence(found, torch.maximum(best.values, full), settings)
        chosen = scores.masked_fill(~competing, NEG_INF).argmax(dim=1, keepdim=True)
        filled = torch.zeros_like(fillable).scatter_(1, chosen, True) & fillable
        if found.stop is not None:
            filled &= (found.stop <= settings.eos_penalty)[:, None]
    return _choices(
        found,
        words=best.indices,
        filled=filled,
        word_score=best.values - found.normaliser,
        gap_score=gap_score,
        end_score=end_score,
    )


def _confidence(found: Insertions, best: Tensor, settings: config.Decode) -> Tensor:
    """How sure the model is of the word of each gap, as a logarithm. best, returns: (S, G); best: logits."""
    if settings.confidence == "probability":
        return best - found.normaliser
    scores = found.logits - found.normaliser[..., None]
    scores[..., FULL] -= settings.eos_penalty
    if settings.confidence == "margin":
        first, second = scores.topk(2, dim=-1).values.exp().unbind(dim=-1)
        return (first - second).log().clamp(min=NO_MARGIN)
    return -torch.special.entr(scores.exp()).sum(dim=-1)


def _gaps_and_end(found: Insertions) -> tuple[Tensor, Tensor]:
    """log p of each gap, (S, G), and of ending the sentence, (S,)."""
    if found.stop is None:
        full_score = found.logits[..., FULL] - found.normaliser
        return found.gap, (found.gap + full_score).logsumexp(dim=1)
    return found.gap + logsigmoid(-found.stop)[:, None], logsigmoid(found.stop)


def draw_choices(found: Insertions, uniform: Tensor, *, settings: config.Decode) -> list[GapChoice]:
    """Draw what each canvas gets next: the end or a gap, then the gap's word. uniform: (S, 2), in [0, 1)."""
    gap_score, end_score = _gaps_and_end(found)
    words = found.logits[..., FULL + 1 :]  # (S, G, V - 1)
    not_full = words.logsumexp(dim=-1) - found.normaliser
    ending = (end_score - settings.eos_penalty)[:, None]
    first = draw(
        torch.cat([ending, gap_score + not_full], dim=1), uniform[:, 0], temperature=settings.temperature
    )
    ends = first == 0
    gap = (first - 1).clamp(min=0)[:, None]  # (S, 1)
    scores = words.gather(1, gap[..., None].expand(-1, -1, words.shape[2])).squeeze(1)  # (S, V - 1)
    word = draw(truncate(scores, settings), uniform[:, 1], temperature=settings.temperature)[:, None]
    word_score = scores.gather(1, word) - found.normaliser.gather(1, gap)
    blank = torch.zeros_like(found.gap)
    return _choices(
        found,
        words=torch.zeros_like(blank, dtype=torch.long).scatter(1, gap, word),
        filled=torch.zeros_like(blank, dtype=torch.bool).scatter(1, gap, ~ends[:, None]),
        word_score=blank.scatter(1, gap, word_score),
        gap_score=gap_score,
        end_score=end_score,
    )


def _choices(
    found: Insertions,
    *,
    words: Tensor,
    filled: Tensor,
    word_score: Tensor,
    gap_score: Tensor,
    end_score: Tensor,
) -> list[GapChoice]:
    """Turn the choices of all canvases into lists. words: counted from the first after `<eod>`."""
    rows = zip(
        (words + FIRST_WORD + FULL + 1).tolist(),
        [[gap for gap, chosen in enumerate(row) if chosen] for row in filled.tolist()],
        word_score.tolist(),
        gap_score.tolist(),
        end_score.tolist(),
        strict=True,
    )
    return [GapChoice(*row, end_is_word=found.stop is None) for row in rows]


def _canvases(drafts: Sequence[Draft], *, device: torch.device) -> tuple[Tensor, Tensor]:
    """Words of the canvases, (S, n), padded, and their lengths, (S,)."""
    read = [draft.read() for draft in drafts]
    longest = max(map(len, read))
    padded = [words + [PAD] * (longest - len(words)) for words in read]
    return torch.tensor(padded, device=device), torch.tensor([len(words) for words in read], device=device)
