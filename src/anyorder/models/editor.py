"""The editor: a network that changes a draft, by insertions, substitutions and deletions.

The encoder reads the source, if there is one. The draft stands on the canvas from the start: its tokens see
each other, and every edit adds one token that sees all before it. So a cache holds for editing as for
writing: what was computed for a token, ghost or not, is never computed again.

Each step chooses twice. First it points to what is to be done and where: to one side of a token (insert), to
a token (substitute or delete), or to the end. Then it chooses the word, unless the edit needs none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.edits import EditBatch
from anyorder.editing import BOUNDARIES, CanvasTensors, EditKind, distances, hidden, live
from anyorder.insertion import NEG_INF
from anyorder.models.attention import Relations
from anyorder.models.decoder_state import KVCache, SourceKeys, VectorBuffer
from anyorder.models.encoder_decoder import EncoderDecoder, Memory, initialise
from anyorder.models.heads import Copyable, CopyHead, WordHead, at_least_float, first_word
from anyorder.models.kernels.training import word_scores
from anyorder.models.loss import Loss
from anyorder.text.tokenizer import UNK

# B drafts, Q steps asked at once, N tokens ever written, K edits, D width, V words

LEFT, RIGHT, SUBSTITUTE, DELETE = range(4)  # the keys of a token
KEYS = 4


class PlacePointer(nn.Module):
    """p(what to do and where): a pointer with four keys for each token, and one key for the end.

    As in self-attention, the logit also depends on how far apart the last edit and the token are.
    """

    def __init__(self, *, width: int, kinds: int) -> None:
        super().__init__()
        self.scale = width**-0.5
        self.project = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, KEYS * width, bias=False)
        self.relation_keys = nn.Parameter(torch.randn(KEYS, kinds, width) * self.scale)
        self.finish = nn.Parameter(torch.randn(width) * self.scale)

    def forward(self, states: Tensor, keys: Tensor, relations: Relations) -> tuple[Tensor, Tensor]:
        """Logits of all keys, (B, Q, 4, N), and of the end, (B, Q).

        states: (B, Q, D); keys: (B, N, 4 · D), from `keys`; relations: of the Q tokens to all N.
        """
        query = self.project(states) * self.scale
        by_key = keys.unflatten(-1, (KEYS, -1)).transpose(1, 2)  # (B, 4, N, D)
        logits = torch.matmul(query[:, None], by_key.mT)  # (B, 4, Q, N)
        logits = logits + relations.bias(torch.matmul(query[:, None], self.relation_keys.mT))
        return at_least_float(logits.transpose(1, 2)), at_least_float(query @ self.finish)


class Editor(EncoderDecoder):
    """An encoder for the source, a decoder over the draft and its edits, and the heads of places and words.

    Relations are distances: how far apart two tokens stood when the later one was written. Ghosts have a
    relation of their own.
    """

    def __init__(self, settings: config.Model, edit: config.Edit, shape: Shape) -> None:
        self.kinds = 2 * settings.clip + 2
        super().__init__(settings, shape, kinds=self.kinds)
        self.edit = edit
        width = settings.width
        self.marks = nn.Parameter(torch.randn(len(EditKind), width) * width**-0.5)  # of what an edit writes
        self.places = PlacePointer(width=width, kinds=self.kinds)
        # The word is predicted from the state and from what stands at its place: the two neighbours of its
        # gap, or the token that it replaces.
        self.hints = nn.Linear(width, 3 * width, bias=False)
        self.word_head = WordHead(width=width, first=first_word(position_first=True))
        self.copy_head = CopyHead(width=width) if settings.copying else None
        self.apply(initialise)

    # --- states ---

    def states(self, memory: Memory, canvas: CanvasTensors) -> tuple[Tensor, Relations]:
        """State of each token, (B, N, D), and the relations among them: all steps at once."""
        related = self.related(distances(canvas, clip=self.settings.clip))
        states = self.dropout(self.embedded(canvas.words, canvas.marks))
        blocked = hidden(canvas)[:, None]
        for layer, source in zip(self.decoder, self.source_keys(memory), strict=True):
            states = layer(states, relations=related, blocked=blocked, source=source)
        return self.decoder_norm(states), related

    def related(self, apart: Tensor) -> Relations:
        """Relations as the layers take them. apart: (B, Q, N), from -clip to clip + 1."""
        kinds = torch.arange(self.kinds, device=apart.device) - self.settings.clip
        return Relations((apart[:, :, None, :] == kinds[:, None]).to(self.marks.dtype))

    def embedded(self, words: Tensor, marks: Tensor) -> Tensor:
        """Embed words with the marks of what wrote them; a deletion has no word. Both: (B, n)."""
        if not self.settings.copying:
            words = words.where(words < self.shape.target_vocabulary, UNK)
        marked = functional.pad(self.marks, (0, 0, 1, 0))  # the draft has no mark
        return self.scaled_embedding(words) + marked[marks]

    # --- heads ---

    def allowed_keys(self, there: Tensor, draft: Tensor) -> Tensor:
        """Which keys may be chosen. there: (B, Q, N), on the canvas; draft: (B, N); returns (B, Q, 4, N)."""
        tokens = torch.arange(there.shape[-1], device=there.device)
        removable = there & draft[:, None]
        keys = [
            there & (tokens != 0),  # nothing goes left of `<s>`
            there & (tokens != 1),  # nor right of `</s>`
            removable if self.edit.substitute else torch.zeros_like(removable),
            removable,
        ]
        return torch.stack(keys, dim=2)

    def word_query(self, states: Tensor, hints: Tensor, *, left: Tensor, right: Tensor) -> Tensor:
        """Query of the word at a place. states: (B, Q, D); hints: (B, N, 3 · D), from `hints`.

        left, right: (B, Q), the neighbours of a gap, or twice the token that is replaced.
        """
        width = states.shape[-1]
        of_left, of_right, of_replaced = hints.split(width, dim=-1)

        def picked(vectors: Tensor, tokens: Tensor) -> Tensor:
            return vectors.gather(1, tokens[..., None].expand(-1, -1, width))

        replaces = (left == right)[..., None]
        hint = torch.where(
            replaces, picked(of_replaced, left), picked(of_left, left) + picked(of_right, right)
        )
        return self.word_head.query(states, hint=hint)

    def word_logits(self, query: Tensor) -> Tensor:
        """Logits of all words, from `<unk>` on. query: (..., D)."""
        return at_least_float(self.word_head(query, self.output_embedding))

    def copyable(self, states: Tensor, words: Tensor, real: Tensor) -> Copyable | None:
        """What may be copied of the drafts; None if the model does not copy.

        states: (B, n, D), of the draft's tokens; words, real: (B, n).
        """
        if self.copy_head is None:
            return None
        ids = max(self.shape.target_vocabulary, int(words.max()) + 1 if words.numel() else 0)
        return Copyable(keys=self.copy_head.keys(states), words=words.where(real, 0), ids=ids)


# --- the loss ---


def editing_loss(model: Editor, batch: EditBatch, *, label_smoothing: float = 0.0) -> Loss:
    """Minus the log-likelihood of scripts; the loss of places counts as that of gaps."""
    scores = score_edits(model, model.encode(batch.source, batch.source_mask), batch)
    weights = batch.weights[:, None]
    place, word, uniform = (-(one * weights).sum() for one in (scores.place, scores.word, scores.uniform))
    return Loss(
        objective=(1 - label_smoothing) * word + label_smoothing * uniform + place,
        word=word.detach(),
        gap=place.detach(),
        words=float((scores.has_word * weights).sum()),
        gaps=batch.steps,
    )


@dataclass(frozen=True)
class EditScores:
    """log p of each step's place and word, zero where there is none; the end is the last place."""

    place: Tensor  # (B, K + 1)
    word: Tensor  # (B, K)
    uniform: Tensor  # (B, K), mean log p over all words, which label smoothing raises
    has_word: Tensor  # (B, K), bool


def score_edits(model: Editor, memory: Memory, batch: EditBatch) -> EditScores:
    """Score every edit of every script at once."""
    canvas = batch.canvas
    states, related = model.states(memory, canvas)
    asked = _asked(canvas)  # the tokens whose states predict the K + 1 steps
    queries = states[:, asked]
    logits, finish = model.places(queries, model.places.keys(states), Relations(related.one_hot[:, asked]))
    logits = logits.masked_fill(~model.allowed_keys(live(canvas), drafts_of(canvas)), NEG_INF)
    chosen, steps = _chosen_places(logits, finish, batch)
    normaliser = torch.logaddexp(logits.flatten(-2).logsumexp(dim=-1), finish)
    place = (chosen - normaliser).masked_fill(steps > batch.lengths[:, None], 0.0)

    has_word = (steps[:, :-1] < batch.lengths[:, None]) & (batch.kind != EditKind.DELETE)  # (B, K)
    query = model.word_query(queries[:, :-1], model.hints(states), left=batch.left, right=batch.right)
    word, uniform = _word_scores(model, states, query, canvas, has_word)
    return EditScores(
        place=place,
        word=word.masked_fill(~has_word, 0.0),
        uniform=uniform,
        has_word=has_word,
    )


def drafts_of(canvas: CanvasTensors) -> Tensor:
    """Which tokens are words of the draft. Returns (B, N), bool."""
    columns = torch.arange(canvas.words.shape[1], device=canvas.words.device)
    return canvas.real & (columns >= BOUNDARIES) & (columns < canvas.block)


def _asked(canvas: CanvasTensors) -> Tensor:
    """The first step is predicted from `</s>`, which sees the whole draft; others from the last edit."""
    edits = torch.arange(canvas.block, canvas.words.shape[1], device=canvas.words.device)
    return functional.pad(edits, (1, 0), value=1)


def _chosen_places(logits: Tensor, finish: Tensor, batch: EditBatch) -> tuple[Tensor, Tensor]:
    """Logit of each step's place, and the number of each step, from 0. Both: (B, K + 1)."""

    def of_key(key: int, token: Tensor) -> Tensor:
        return logits[:, :-1, key].gather(2, token[..., None]).squeeze(2)  # (B, K)

    inserted = torch.logaddexp(of_key(RIGHT, batch.left), of_key(LEFT, batch.right))
    chosen = torch.where(batch.kind == EditKind.SUBSTITUTE, of_key(SUBSTITUTE, batch.left), inserted)
    chosen = torch.where(batch.kind == EditKind.DELETE, of_key(DELETE, batch.left), chosen)
    steps = torch.arange(finish.shape[1], device=finish.device).expand_as(finish)
    at_end = steps >= batch.lengths[:, None]
    # Padded steps take the end's logit, which is finite: their score does not count.
    return torch.where(at_end, finish, functional.pad(chosen, (0, 1))), steps


def _word_scores(
    model: Editor, states: Tensor, query: Tensor, canvas: CanvasTensors, has_word: Tensor
) -> tuple[Tensor, Tensor]:
    """log p of each edit's word, and the mean log p over all words. query: (B, K, D); others: (B, K)."""
    words = canvas.words[:, canvas.block :]
    copied_only = words >= model.shape.target_vocabulary
    column = words.masked_fill(copied_only | ~has_word, UNK) - model.word_head.first
    logits = model.word_logits(query[has_word])  # (M, V), of real words only
    blank = torch.zeros(has_word.shape, dtype=logits.dtype, device=logits.device)
    word, uniform = (
        blank.masked_scatter(has_word, scores) for scores in word_scores(logits, column[has_word])
    )
    draft = slice(BOUNDARIES, canvas.block)
    copyable = model.copyable(states[:, draft], canvas.words[:, draft], canvas.real[:, draft])
    if copyable is None or model.copy_head is None:
        return word, uniform  # a word that is not in the vocabulary is learned as `<unk>`
    word = word.masked_fill(copied_only, NEG_INF)
    return model.copy_head.mixed(word, query, copyable, words), uniform


# --- step by step ---


class EditorState:
    """Drafts under way: keys and values of all tokens so far, and of their places."""

    def __init__(self, model: Editor, memory: Memory) -> None:
        self.sources: list[SourceKeys] = model.source_keys(memory)
        self.caches = [KVCache() for _ in self.sources]  # one a layer
        self.keys, self.hints = VectorBuffer(), VectorBuffer()  # (B, N, 4 · D) and (B, N, 3 · D)
        self.copyable: Copyable | None = None

    def keep(self, staying: Tensor) -> None:
        """Keep some of the drafts; staying: (B',), rising."""
        self.sources = [source.keep(staying) for source in self.sources]
        for cache in self.caches:
            cache.keep(staying)
        self.keys.keep(staying)
        self.hints.keep(staying)
        self.copyable = None if self.copyable is None else self.copyable.keep(staying)


def advance(
    model: Editor, state: EditorState, words: Tensor, marks: Tensor, *, related: Relations, blocked: Tensor
) -> Tensor:
    """Add the newest tokens to the cache; returns their states, (B, n, D).

    words, marks: (B, n); related: to all N tokens so far; blocked: (B, n, N).
    """
    states = model.embedded(words, marks)
    for layer, source, cache in zip(model.decoder, state.sources, state.caches, strict=True):
        states = layer(states, relations=related, blocked=blocked[:, None], source=source, cache=cache)
    states = model.decoder_norm(states)
    state.keys.append(model.places.keys(states))
    state.hints.append(model.hints(states))
    return states


def place_scores(
    model: Editor, state: EditorState, newest: Tensor, *, related: Relations, there: Tensor, draft: Tensor
) -> tuple[Tensor, Tensor]:
    """Unnormalised log p of all keys, (B, 4, N), and log p of the end, (B,), which the former share.

    newest: (B, D), the state that predicts the step; there: (B, N), on the canvas; draft: (B, N).
    """
    logits, finish = model.places(newest[:, None], state.keys.vectors, related)
    logits = logits.masked_fill(~model.allowed_keys(there[:, None], draft), NEG_INF)
    normaliser = torch.logaddexp(logits.flatten(-2).logsumexp(dim=-1), finish)
    return (logits - normaliser[..., None, None]).squeeze(1), (finish - normaliser).squeeze(1)


def word_log_probs(
    model: Editor, state: EditorState, newest: Tensor, *, left: Tensor, right: Tensor
) -> Tensor:
    """log p of every word at some places, from `<unk>` on. newest: (B, D); left, right: (B, P)."""
    query = model.word_query(
        newest[:, None].expand(-1, left.shape[1], -1), state.hints.vectors, left=left, right=right
    )
    generated = model.word_logits(query).log_softmax(dim=-1)
    if model.copy_head is None or state.copyable is None:
        return generated
    return model.copy_head.mixed_with_all(generated, query, state.copyable, first=model.word_head.first)
