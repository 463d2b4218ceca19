"""The network, against loops written from the paper's formulas, and its cache against none."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from conftest import FIRST_WORD, indices_after, next_step, random_examples, random_sources, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.batches import Batch, collate
from anyorder.insertion import relations
from anyorder.models.attention import CrossAttention, FeedForward, Relations, SelfAttention
from anyorder.models.choices import END, StepChoices, word_and_gap
from anyorder.models.encoder_decoder import Memory, sinusoids
from anyorder.models.indigo import Indigo
from anyorder.models.loss import score_steps
from anyorder.text.tokenizer import BOS, EOD, EOS

EXACT = {"rtol": 0.0, "atol": 1e-10}
SINGLE = {"rtol": 0.0, "atol": 1e-5}  # log-probabilities are single precision even in a double model

firsts = pytest.mark.parametrize("first", ["word", "position"])
steps_back = pytest.mark.parametrize("steps_back", [1, 2, 5])


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


# --- by hand: one sentence, one number at a time ---


def attend_by_hand(
    attention: SelfAttention, states: Tensor, relation: Callable[[int, int], int | None]
) -> Tensor:
    """Eq. 7, scaled by √d_head. states: (T, D); relation: a row of A, or None where i must not look at j."""
    query_map, key_map, value_map = attention.project.weight.chunk(3)
    d_head = states.shape[1] // attention.heads
    attended = []
    for i, query_state in enumerate(states):
        by_head = []
        for head in range(attention.heads):
            mine = slice(head * d_head, (head + 1) * d_head)
            query = (query_map @ query_state)[mine]
            logits, values = [], []
            for j, key_state in enumerate(states):
                row = relation(i, j)
                if row is None:
                    continue
                key = (key_map @ key_state)[mine] + attention.relation_keys[head, row]
                logits.append(query @ key / math.sqrt(d_head))
                values.append((value_map @ key_state)[mine])
            weights = torch.stack(logits).softmax(dim=0)
            by_head.append(sum(weight * value for weight, value in zip(weights, values, strict=True)))
        attended.append(attention.output.weight @ torch.cat(by_head) + attention.output.bias)
    return torch.stack(attended)


def attend_to_source_by_hand(cross: CrossAttention, states: Tensor, source: Tensor) -> Tensor:
    key_map, value_map = cross.project.weight.chunk(2)
    keys, values = source @ key_map.T, source @ value_map.T
    queries = states @ cross.query.weight.T
    d_head = states.shape[1] // cross.heads
    by_head = []
    for head in range(cross.heads):
        mine = slice(head * d_head, (head + 1) * d_head)
        weights = (queries[:, mine] @ keys[:, mine].T / math.sqrt(d_head)).softmax(dim=1)
        by_head.append(weights @ values[:, mine])
    return torch.cat(by_head, dim=1) @ cross.output.weight.T + cross.output.bias


def norm_by_hand(norm: nn.LayerNorm, states: Tensor) -> Tensor:
    centred = states - states.mean(dim=1, keepdim=True)
    return centred / (centred.square().mean(dim=1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def feed_forward_by_hand(feed_forward: FeedForward, states: Tensor) -> Tensor:
    inner, _, _, outer = feed_forward
    return (states @ inner.weight.T + inner.bias).clamp(min=0) @ outer.weight.T + outer.bias


def encode_by_hand(model: Indigo, ids: Tensor) -> Tensor:
    """With relative positions. ids: (S,); returns (S, D)."""
    clip = model.settings.clip
    states = model.embed_source.weight[ids] * math.sqrt(model.settings.width)
    for layer in model.encoder:
        states = states + attend_by_hand(
            layer.attention,
            norm_by_hand(layer.attention_norm, states),
            relation=lambda i, j: clip + max(-clip, min(clip, i - j)),
        )
        states = states + feed_forward_by_hand(
            layer.feed_forward, norm_by_hand(layer.feed_forward_norm, states)
        )
    return norm_by_hand(model.encoder_norm, states)


def causal_transformer_by_hand(model: Indigo, source: Tensor, words: Tensor) -> Tensor:
    """A plain left-to-right Transformer, whose keys tell `</s>`, itself and the rest.

    Of the paper it has no positions; with steps_back above 1, keys tell how far back they are.
    source: (S, D), encoded; words: (N,), `<s> </s>` first; returns (N, D).
    """
    itself = model.settings.steps_back

    def relation(i: int, j: int) -> int | None:
        if j > i:
            return None
        ago = min(i - j, model.settings.steps_back)
        return itself - ago if words[j] == EOS else itself + ago

    states = model.embed_target.weight[words] * math.sqrt(model.settings.width)
    for layer in model.decoder:
        states = states + attend_by_hand(
            layer.attention, norm_by_hand(layer.attention_norm, states), relation
        )
        states = states + attend_to_source_by_hand(
            layer.cross, norm_by_hand(layer.cross_norm, states), source
        )
        states = states + feed_forward_by_hand(
            layer.feed_forward, norm_by_hand(layer.feed_forward_norm, states)
        )
    return norm_by_hand(model.decoder_norm, states)


# --- attention ---


@given(st.permutations(range(6)), st.integers(0, 2**31))
def test_relative_attention_is_equation_7(indices: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    attention = SelfAttention(width=8, heads=2, kinds=3, dropout=0.1).double().eval()
    states = torch.randn(1, 6, 8, dtype=torch.float64)
    related = relations(torch.tensor([indices]))
    causal = torch.ones(6, 6, dtype=torch.bool).triu(diagonal=1)
    fast = attention(states, relations=Relations.signed(related, dtype=torch.float64), blocked=causal)

    def relation(i: int, j: int) -> int | None:
        left_of, itself, right_of = 0, 1, 2
        if j > i:
            return None
        if j == i:
            return itself
        return left_of if indices[i] < indices[j] else right_of

    slow = attend_by_hand(attention, states[0], relation)
    torch.testing.assert_close(fast[0], slow, **EXACT)


def test_clip_1_is_the_ternary_relation() -> None:
    distances = Relations.distances(5, clip=1, device=torch.device("cpu"), dtype=torch.float64)
    ternary = Relations.signed(relations(torch.arange(5)[None]), dtype=torch.float64)
    assert torch.equal(distances.one_hot, ternary.one_hot)


@pytest.mark.parametrize("clip", [1, 2, 16])
@pytest.mark.parametrize("layers", [1, 2])
def test_relative_encoder_by_hand(clip: int, layers: int) -> None:
    """One sentence alone and one that is padded in a batch of two."""
    model = tiny_model(clip=clip, encoder_layers=layers)
    source, mask = random_sources(lengths=[6, 3])
    encoded = model.encode(source, mask).states
    alone = model.encode(source[:1], mask[:1]).states
    torch.testing.assert_close(alone[0], encode_by_hand(model, source[0]), **EXACT)
    for row in range(2):
        by_hand = encode_by_hand(model, source[row][mask[row]])
        torch.testing.assert_close(encoded[row][mask[row]], by_hand, **EXACT)


# --- sources ---


def test_without_positions_the_source_is_a_bag() -> None:
    model = tiny_model(encoder_positions="none")
    source, mask = random_sources(lengths=[7])
    shuffled = torch.randperm(source.shape[1], generator=torch.Generator().manual_seed(1))
    straight, mixed = model.encode(source, mask), model.encode(source[:, shuffled], mask)
    torch.testing.assert_close(mixed.states, straight.states[:, shuffled], **EXACT)
    words, positions = torch.tensor([[BOS, EOS, FIRST_WORD]]), torch.tensor([[0, 2, 1]])
    torch.testing.assert_close(
        model.states(mixed, words, positions), model.states(straight, words, positions), **EXACT
    )


@pytest.mark.parametrize("positions", ["relative", "sinusoidal"])
def test_with_positions_the_order_of_the_source_matters(positions: str) -> None:
    model = tiny_model(encoder_positions=positions)
    source = torch.tensor([[FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2]])
    mask = torch.ones_like(source, dtype=torch.bool)
    straight, mixed = model.encode(source, mask), model.encode(source.flip(1), mask)
    assert (straight.states.flip(1) - mixed.states).abs().max() > 1e-3


def test_sinusoids_are_the_formula() -> None:
    for index, row in enumerate(sinusoids(5, 6).tolist()):
        for pair in range(3):
            angle = index / 10_000 ** (2 * pair / 6)
            assert row[2 * pair : 2 * pair + 2] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-6)


def test_sinusoids_are_added_to_the_scaled_embedding() -> None:
    model = tiny_model(encoder_positions="sinusoidal", encoder_layers=0)
    source, mask = random_sources(lengths=[4])
    states = model.embed_source.weight[source[0]] * math.sqrt(8) + sinusoids(5, 8).double()
    torch.testing.assert_close(
        model.encode(source, mask).states[0], norm_by_hand(model.encoder_norm, states), **EXACT
    )


@pytest.mark.parametrize("positions", ["relative", "sinusoidal", "none"])
def test_padding_of_token_sources_changes_nothing(positions: str) -> None:
    model = tiny_model(encoder_positions=positions)
    source, mask = random_sources(lengths=[6, 2, 4])
    garbage = torch.where(mask, source, FIRST_WORD + 1)
    assert_padding_is_ignored(model, source, garbage, mask)


@pytest.mark.parametrize("positions", ["relative", "sinusoidal", "none"])
def test_padding_of_feature_grids_changes_nothing(positions: str) -> None:
    model = tiny_model(encoder_positions=positions, features=5)
    source = torch.randn(3, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) < torch.tensor([[6], [2], [4]])
    garbage = torch.where(mask[..., None], source, 1e3)
    assert_padding_is_ignored(model, source, garbage, mask)


def assert_padding_is_ignored(model: Indigo, source: Tensor, garbage: Tensor, mask: Tensor) -> None:
    """Neither the encoder nor the decoder sees it, alone or in a batch."""
    clean, dirty = model.encode(source, mask), model.encode(garbage, mask)
    words = torch.tensor([[BOS, EOS, FIRST_WORD, FIRST_WORD + 2]]).expand(len(source), -1)
    positions = torch.tensor([[0, 3, 2, 1]]).expand(len(source), -1)
    torch.testing.assert_close(
        model.states(dirty, words, positions), model.states(clean, words, positions), **EXACT
    )
    for row in range(len(source)):
        real = mask[row]
        alone = model.encode(source[row : row + 1, real], mask[row : row + 1, real])
        torch.testing.assert_close(dirty.states[row, real], alone.states[0], **EXACT)
        torch.testing.assert_close(
            model.states(dirty, words, positions)[row],
            model.states(alone, words[:1], positions[:1])[0],
            **EXACT,
        )


def test_feature_grids_are_projected() -> None:
    model = tiny_model(features=5, encoder_layers=0, encoder_positions="none")
    grid = torch.randn(1, 4, 5, dtype=torch.float64)
    projected = grid[0] @ model.embed_source.weight.T + model.embed_source.bias
    encoded = model.encode(grid, torch.ones(1, 4, dtype=torch.bool)).states[0]
    torch.testing.assert_close(encoded, norm_by_hand(model.encoder_norm, projected), **EXACT)


# --- embeddings ---


@pytest.mark.parametrize(
    ("share", "source_is_target", "output_is_target"),
    [("all", True, True), ("target", False, True), ("none", False, False)],
)
def test_share_decides_which_embeddings_are_one(
    share: str, source_is_target: bool, output_is_target: bool
) -> None:
    model = tiny_model(share=share)
    assert (model.embed_source is model.embed_target) == source_is_target
    assert (model.embed_output is model.embed_target) == output_is_target


@pytest.mark.parametrize("share", ["target", "none"])
def test_targets_may_use_only_the_first_ids(share: str) -> None:
    model = Indigo(
        config.Model(width=8, hidden=8, heads=2, encoder_layers=1, decoder_layers=1, share=share),
        Shape(vocabulary=20, target_vocabulary=9),
    )
    assert model.embed_source.weight.shape == (20, 8)
    assert model.embed_target.weight.shape == model.embed_output.weight.shape == (9, 8)
    assert model.word_logits(torch.zeros(1, 8)).shape == (1, 9 - EOD)


def test_boundaries_and_padding_are_no_words() -> None:
    word_first, position_first = tiny_model(words=3), tiny_model(words=3, first="position")
    state = torch.randn(2, 8, dtype=torch.float64)
    assert word_first.word_logits(state).shape == (2, 1 + 3)  # <eod> and the words
    assert position_first.word_logits(position_first.word_query(state, state)).shape == (2, 3)


def test_choices_name_words_and_gaps() -> None:
    """The first choice 0 is the end; position first, it takes the place of `<eod>` and gaps count from 1."""
    word, gap = word_and_gap(tiny_model(), torch.tensor([END, 1]), torch.tensor([0, 2]))
    assert (word.tolist(), gap.tolist()) == ([EOD, FIRST_WORD], [0, 2])
    word, gap = word_and_gap(tiny_model(first="position"), torch.tensor([1, 3]), torch.tensor([0, 1]))
    assert (word.tolist(), gap.tolist()) == ([FIRST_WORD, FIRST_WORD + 1], [0, 2])


# --- left to right is a causal Transformer ---


@pytest.mark.parametrize("share", ["all", "target", "none"])
@steps_back
def test_left_to_right_is_a_causal_transformer(share: str, steps_back: int) -> None:
    model = tiny_model(share=share, steps_back=steps_back)
    source, mask = random_sources(lengths=[4], seed=3)
    memory = model.encode(source, mask)
    words = torch.tensor([BOS, EOS, *(FIRST_WORD + number for number in (2, 0, 0, 1))])
    states = causal_transformer_by_hand(model, memory.states[0], words)
    positions = torch.tensor([[0, 5, 1, 2, 3, 4]])
    torch.testing.assert_close(model.states(memory, words[None], positions)[0], states, **EXACT)

    by_hand = 0.0
    for state, word in zip(states[1:], [*words[2:].tolist(), EOD], strict=True):
        logits = model.embed_output.weight @ (model.word_head.project.weight @ state)
        logits[:EOD] = float("-inf")
        by_hand += float(logits.log_softmax(dim=0)[word])
    batch = Batch(
        source=source,
        source_mask=mask,
        words=words[None],
        order=positions[:, 2:],
        lengths=torch.tensor([4]),
        weights=torch.ones(1),
        given=torch.zeros(1, dtype=torch.long),
        required=torch.zeros(1, 0, dtype=torch.long),
    )
    assert float(score_steps(model, memory, batch).word.sum()) == pytest.approx(by_hand, abs=1e-5)


@given(st.permutations(range(1, 5)))
def test_steps_back_tell_when_a_word_was_written(order: list[int]) -> None:
    """Two orders of writing the same words into the same positions, told apart by recency alone."""
    words = torch.tensor([[BOS, EOS, *range(FIRST_WORD, FIRST_WORD + 4)]])
    indices = torch.tensor([[0, 5, *order]])
    swapped = [0, 1, 3, 2, 4, 5]  # the first two words change their steps
    source, mask = random_sources(lengths=[4])
    for steps_back in (1, 3):
        # One layer: else what a word saw when it was written would tell, too.
        model = tiny_model(words=4, steps_back=steps_back, decoder_layers=1)
        memory = model.encode(source, mask)
        last, of_swapped = (
            model.states(memory, words[:, rows], indices[:, rows])[0, -1] for rows in (range(6), swapped)
        )
        alike = torch.allclose(last, of_swapped, **EXACT)
        assert alike == (steps_back == 1)


# --- cached and uncached ---


def places_of_prefix(positions: Tensor, tokens: int) -> Tensor:
    """Where the first tokens stand when no others are written yet. positions: (B, N); returns (B, tokens)."""
    prefix = positions[:, :tokens]
    return (prefix[:, :, None] > prefix[:, None, :]).sum(dim=2)


@firsts
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, SINGLE), (torch.float64, EXACT)])
@pytest.mark.parametrize("seed", range(3))
@steps_back
def test_cached_equals_uncached(
    first: str, dtype: torch.dtype, tolerance: dict[str, float], seed: int, steps_back: int
) -> None:
    """Random orders, long enough for the cache to run out of room and grow."""
    model = tiny_model(first=first, dtype=dtype, seed=seed, steps_back=steps_back)
    batch = collate(random_examples(lengths=[22, 3, 0, 9], seed=seed))
    memory = model.encode(batch.source, batch.source_mask)
    positions = batch.supervision.positions
    uncached = model.states(memory, batch.words, positions)
    decoder_state = model.start(memory)
    newest = batch.words[:, :2]
    for written in range(2, batch.words.shape[1] + 1):
        state = model.advance(decoder_state, newest, places_of_prefix(positions, written))
        torch.testing.assert_close(state, uncached[:, written - 1], **tolerance)
        newest = batch.words[:, written : written + 1]
    for cached, fresh in zip(decoder_state.gap_keys, model.gap_head.keys_of(uncached), strict=True):
        torch.testing.assert_close(cached, fresh, **tolerance)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 100), st.integers(1, 4))
def test_tokens_may_come_several_at_a_time(portions: list[int], seed: int, steps_back: int) -> None:
    model = tiny_model(steps_back=steps_back)
    batch = collate(random_examples(lengths=[sum(portions), 1], seed=seed))
    memory = model.encode(batch.source, batch.source_mask)
    positions = batch.supervision.positions
    uncached = model.states(memory, batch.words, positions)
    decoder_state, written = model.start(memory), 0
    for portion in (2, *portions):
        newest = batch.words[:, written : written + portion]
        written += portion
        state = model.advance(decoder_state, newest, places_of_prefix(positions, written))
        torch.testing.assert_close(state, uncached[:, written - 1], **EXACT)


@steps_back
def test_beams_share_their_source_and_may_be_chosen_anew(steps_back: int) -> None:
    """Three rows a source; then some leave, some double, and the first source is done."""
    model = tiny_model(steps_back=steps_back)
    source, mask = random_sources(lengths=[3, 5])
    memory = model.encode(source, mask)
    words = torch.randint(FIRST_WORD, FIRST_WORD + 3, (6, 2), generator=torch.Generator().manual_seed(2))
    words = torch.cat([torch.tensor([[BOS, EOS]]).expand(6, -1), words], dim=1)
    indices = torch.tensor([indices_after([0, row % 2]) for row in range(6)])
    decoder_state = model.start(memory)
    state = model.advance(decoder_state, words, indices)
    each_its_source = Memory(memory.states.repeat_interleave(3, dim=0), mask.repeat_interleave(3, dim=0))
    torch.testing.assert_close(state, model.states(each_its_source, words, indices)[:, -1], **EXACT)

    rows = torch.tensor([5, 3, 3, 4])
    decoder_state.follow(torch.tensor([[0, 0, 0, 0], [2, 0, 0, 1]]), torch.tensor([1]))
    words = torch.cat([words[rows], torch.full((4, 1), FIRST_WORD)], dim=1)
    indices = torch.tensor([indices_after([0, int(row) % 2, 1]) for row in rows])
    state = model.advance(decoder_state, words[:, -1:], indices)
    second_source = Memory(memory.states[1:].expand(4, -1, -1), mask[1:].expand(4, -1))
    torch.testing.assert_close(state, model.states(second_source, words, indices)[:, -1], **EXACT)


def test_a_batch_is_its_sentences_one_by_one() -> None:
    """Neither the padding of targets nor garbage in it reaches a real token."""
    model = tiny_model()
    examples = random_examples(lengths=[5, 0, 3, 8])
    batch = collate(examples)
    real = torch.arange(batch.words.shape[1]) < batch.lengths[:, None] + 2
    garbage = torch.where(real, batch.words, FIRST_WORD + 1)
    memory = model.encode(batch.source, batch.source_mask)
    together = model.states(memory, garbage, batch.supervision.positions)
    for row, example in enumerate(examples):
        single = collate([example])
        alone_memory = model.encode(single.source, single.source_mask)
        alone = model.states(alone_memory, single.words, single.supervision.positions)
        torch.testing.assert_close(together[row][real[row]], alone[0], **EXACT)


# --- the next step ---


@firsts
@pytest.mark.parametrize("share", ["all", "none"])
@pytest.mark.parametrize("gaps", [[], [0], [0, 0, 2], [0, 1, 1, 0, 4]])
def test_choices_of_a_step_are_the_formulas(first: str, share: str, gaps: list[int]) -> None:
    """Eq. 8 and 9 over flat keys, and Eq. 11: a gap's two keys are added."""
    model = tiny_model(first=first, share=share)
    source, mask = random_sources(lengths=[4])
    memory = model.encode(source, mask)
    steps = tuple((FIRST_WORD + number % 3, gap) for number, gap in enumerate(gaps))
    by_hand = next_step(model, memory, steps)
    words = torch.tensor([[BOS, EOS, *(word for word, _ in steps)]])
    indices = torch.tensor([indices_after(gaps)])
    decoder_state = model.start(memory)
    state = model.advance(decoder_state, words, indices)
    choices = StepChoices(model, decoder_state, state, indices)
    first_scores = choices.first_log_probs()[0]
    every = torch.arange(1, len(first_scores))  # all first choices but END
    second_scores = choices.second_log_probs(every[None])[0]
    assert float(first_scores[END]) == pytest.approx(by_hand.end, abs=1e-5)
    word, gap = (
        (second_scores.T, first_scores[1:].expand(3, -1))
        if first == "position"
        else (first_scores[1:, None].expand_as(second_scores), second_scores)
    )
    torch.testing.assert_close(word.double(), by_hand.word, **SINGLE)
    torch.testing.assert_close(gap.double(), by_hand.gap, **SINGLE)


@firsts
def test_choices_of_a_step_sum_to_one(first: str) -> None:
    model = tiny_model(first=first)
    source, mask = random_sources(lengths=[4, 2])
    decoder_state = model.start(model.encode(source, mask))
    indices = torch.tensor([indices_after([0, 1, 1])]).expand(2, -1)
    words = torch.tensor([[BOS, EOS, FIRST_WORD, FIRST_WORD + 1, FIRST_WORD]]).expand(2, -1)
    state = model.advance(decoder_state, words, indices)
    choices = StepChoices(model, decoder_state, state, indices)
    first_scores = choices.first_log_probs()
    second_scores = choices.second_log_probs(torch.arange(1, first_scores.shape[1]).expand(2, -1))
    for scores in (first_scores, second_scores):
        totals = scores.logsumexp(dim=-1)
        torch.testing.assert_close(totals, torch.zeros_like(totals))
