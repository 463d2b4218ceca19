"""Laws of the editor: probabilities of all scripts, cached and uncached states, single and in a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anyorder import config
from anyorder.config.model import Shape
from anyorder.data.edits import edit_batch
from anyorder.decoding.editing import DraftToEdit, edit_all
from anyorder.editing import Edit, EditCanvas, EditKind
from anyorder.models.editor import Editor, editing_loss, score_edits
from anyorder.text.tokenizer import UNK

WORDS = 3  # `<unk>` and two more
CPU = torch.device("cpu")


def tiny_editor(*, seed: int = 0, substitute: bool = True, **settings: object) -> Editor:
    """A random editor of few words."""
    small = {"width": 8, "hidden": 12, "heads": 2, "encoder_layers": 1, "decoder_layers": 2, "clip": 2}
    torch.manual_seed(seed)
    model = Editor(
        config.Model.model_validate({"kind": "editor"} | small | settings),
        config.Edit(substitute=substitute),
        Shape(vocabulary=UNK + WORDS, target_vocabulary=UNK + WORDS),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.double().eval()


def next_edits(canvas: EditCanvas, *, substitute: bool, words: int = WORDS) -> Iterator[Edit]:
    """Everything that may be done next."""
    for token in canvas.live[:-1]:
        yield from (Edit(EditKind.INSERT, token, UNK + word) for word in range(words))
    for token in canvas.live:
        if token in canvas.draft_tokens:
            yield Edit(EditKind.DELETE, token)
            if substitute:
                yield from (Edit(EditKind.SUBSTITUTE, token, UNK + word) for word in range(words))


def after(draft: list[int], script: tuple[Edit, ...], *, room: int | None = None) -> EditCanvas:
    canvas = EditCanvas(draft, room=room)
    for edit in script:
        canvas.apply(edit)
    return canvas


def all_scripts(draft: list[int], length: int, **options: object) -> list[tuple[Edit, ...]]:
    scripts: list[tuple[Edit, ...]] = [()]
    for _ in range(length):
        scripts = [
            (*script, edit)
            for script in scripts
            for edit in next_edits(after(draft, script), **options)  # type: ignore[arg-type]
        ]
    return scripts


@pytest.mark.parametrize("substitute", [True, False])
@pytest.mark.parametrize("copying", [False, True])
def test_probabilities_of_all_scripts_sum_to_one(substitute: bool, copying: bool) -> None:
    model = tiny_editor(substitute=substitute, copying=copying)
    # A word that only the draft has can be written if the model copies.
    draft = [UNK + 1, UNK + WORDS] if copying else [UNK + 1, UNK + 2]
    words = WORDS + 1 if copying else WORDS
    source = np.array([UNK + 1], dtype=np.int32)
    ended, under_way = 0.0, 1.0
    for length in range(3):
        scripts = all_scripts(draft, length, substitute=substitute, words=words)
        canvases = [after(draft, script) for script in scripts]
        batch = edit_batch(canvases, sources=[source] * len(canvases))
        with torch.no_grad():
            scores = score_edits(model, model.encode(batch.source, batch.source_mask), batch)
        edits = scores.place[:, :length].sum(dim=1) + scores.word.sum(dim=1)
        assert float(edits.exp().sum()) == pytest.approx(under_way, abs=1e-9)
        ends = float((edits + scores.place[:, length]).exp().sum())
        ended, under_way = ended + ends, under_way - ends
        assert 0 < ends < 1


def test_loss_is_the_log_likelihood_of_the_scripts_by_their_weights() -> None:
    model = tiny_editor(copying=True)
    scripts = [
        (),
        (Edit(EditKind.DELETE, 2), Edit(EditKind.INSERT, 3, UNK)),
        (Edit(EditKind.SUBSTITUTE, 3, UNK + 2),),
    ]
    canvases = [after([UNK + 1, UNK + 2], script) for script in scripts]
    batch = edit_batch(canvases, sources=[np.array([UNK], dtype=np.int32)] * 3, weights=[1.0, 0.5, 2.0])
    loss = editing_loss(model, batch)
    alone = [
        editing_loss(model, edit_batch([canvas], sources=[np.array([UNK], dtype=np.int32)]))
        for canvas in canvases
    ]
    expected = sum(weight * float(one.objective) for weight, one in zip((1.0, 0.5, 2.0), alone, strict=True))
    assert float(loss.objective) == pytest.approx(expected)
    assert (loss.words, loss.gaps) == (0.5 + 2.0, batch.steps) == (2.5, 1 + 1.5 + 4)


drafts = st.lists(st.integers(UNK + 1, UNK + WORDS - 1), max_size=5)


@given(drafts=st.lists(drafts, min_size=1, max_size=4), seed=st.integers(0, 20), copying=st.booleans())
def test_decoding_step_by_step_scores_as_all_steps_at_once(
    drafts: list[list[int]], seed: int, copying: bool
) -> None:
    model = tiny_editor(seed=seed, copying=copying)
    sources = [np.array(draft[:2], dtype=np.int32) for draft in drafts]
    asked = [
        DraftToEdit(source, np.array(draft, dtype=np.int32))
        for source, draft in zip(sources, drafts, strict=True)
    ]
    settings = config.Decode(max_ratio=1, max_extra=3, max_deleted=1)
    together = edit_all(model, asked, settings=settings, device=CPU)
    for source, one, request in zip(sources, together, asked, strict=True):
        (alone,) = edit_all(model, [request], settings=settings, device=CPU)
        assert alone.canvas.read() == one.canvas.read()
        assert alone.log_prob == pytest.approx(one.log_prob)
        batch = edit_batch([one.canvas], sources=[source])
        with torch.no_grad():
            scores = score_edits(model, model.encode(batch.source, batch.source_mask), batch)
        places = [edit.place_score for edit in one.edits]
        places += [] if one.end_score is None else [one.end_score]
        assert places == pytest.approx(scores.place[0, : len(places)].tolist())
        assert [edit.word_score for edit in one.edits] == pytest.approx(scores.word[0].tolist())


@given(draft=drafts, seed=st.integers(0, 20))
def test_the_likeliest_place_is_chosen_unless_the_end_is_likelier(draft: list[int], seed: int) -> None:
    model = tiny_editor(seed=seed)
    request = DraftToEdit(np.array([UNK], dtype=np.int32), np.array(draft, dtype=np.int32))
    settings = config.Decode(max_ratio=0, max_length=1, max_deleted=1)
    (one,) = edit_all(model, [request], settings=settings, device=CPU)
    best: dict[Edit, float] = {}
    for edit in next_edits(EditCanvas(draft), substitute=True):
        batch = edit_batch([after(draft, (edit,))], sources=[request.source])
        with torch.no_grad():
            scores = score_edits(model, model.encode(batch.source, batch.source_mask), batch)
        best[edit] = float(scores.place[0, 0]), float(scores.word[0, 0])  # type: ignore[assignment]
    empty = edit_batch([EditCanvas(draft)], sources=[request.source])
    with torch.no_grad():
        end = float(score_edits(model, model.encode(empty.source, empty.source_mask), empty).place[0, 0])
    likeliest = max(place for place, _ in best.values())  # type: ignore[misc]
    if not one.edits:
        assert end >= likeliest or not draft
        return
    assert likeliest > end
    made = one.edits[0]
    assert made.place_score == pytest.approx(likeliest)
    same_place = [
        word
        for edit, (_, word) in best.items()  # type: ignore[misc]
        if (edit.kind, edit.token) == (made.edit.kind, made.edit.token)
        and edit.word != UNK
        and not (edit.kind is EditKind.SUBSTITUTE and edit.word == draft[edit.token - 2])
    ]
    if made.edit.kind is not EditKind.DELETE:
        assert made.word_score == pytest.approx(max(same_place))


def test_a_cautious_editor_makes_no_unlikely_edit() -> None:
    request = DraftToEdit(np.array([], dtype=np.int32), np.array([UNK + 1, UNK + 2], dtype=np.int32))
    for seed in range(20):
        model = tiny_editor(seed=seed)
        for cautious in (0.05, 0.3, 1.0):
            (one,) = edit_all(model, [request], settings=config.Decode(cautious=cautious), device=CPU)
            assert all(math.exp(edit.log_prob) >= cautious for edit in one.edits)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75])
def test_a_draft_never_loses_more_than_its_share(share: float) -> None:
    draft = np.array([UNK + 1, UNK + 2] * 4, dtype=np.int32)
    refused = 0
    for seed in range(30):
        model = tiny_editor(seed=seed)
        with torch.no_grad():
            model.places.relation_keys[3] += 3 * torch.randn(8)  # many deletions, for some seeds
        settings = config.Decode(max_deleted=share)
        (one,) = edit_all(model, [DraftToEdit(draft[:0], draft)], settings=settings, device=CPU)
        assert len(one.canvas.read()) >= (1 - share) * len(draft)
        refused += len(one.refused)
    assert refused
