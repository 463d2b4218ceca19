"""An update is the same however its batch is split: into processes, or into parts that fit into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from corpora import Watcher, recipe_of, write_corpus, write_picture_corpus

from anyorder.config.recipe import Recipe
from anyorder.data.dataset import prepare
from anyorder.system.distributed import Processes
from anyorder.training.trainer import Training

ALONE = Processes(rank=0, count=1, device=torch.device("cpu"))
RANDOM = ("model.dropout=0.3", "order.name=rnd", "train.label_smoothing=0.1", "train.batch_tokens=200")
KINDS = {
    "indigo": (),
    "steps back": ("model.steps_back=3", "model.first=position"),
    "transformer": ("model.kind=transformer", "order.name=l2r"),
    "insertion": ("model.kind=insertion", "order.name=l2r"),
    "copying": ("model.copying=true", "train.hide_words=0.2"),
    "required words": ("canvas.share=0.7", "canvas.required=0.5"),
    "required words of a bag": ("canvas.share=0.7", "text.bag=true", "model.encoder_positions=none"),
    "pieces": ("text.unit=bpe", "text.vocabulary=30", "train.bpe_dropout=0.4"),
    "searched, all orders": (
        *("order.name=sao", "search.method=guided", "search.bootstrap_steps=0", "search.refresh=0"),
        *("search.beam=3", "search.learn_from=all", "search.dropout=0.3", "search.gumbel=0.5"),
    ),
    "drawn": ("order.name=sao", "search.beam=2", "search.max_length=4"),
    "drawn with dropout": ("order.name=sao", "search.beam=2", "search.dropout=0.2"),
    "searched, one order": (
        *("order.name=sao", "search.method=guided", "search.bootstrap_steps=0", "search.refresh=0"),
        *("search.beam=3", "search.temperature=5.0", "search.dropout=0.3"),
    ),
}


def gradients_of_one_update(recipe: Recipe) -> dict[str, np.ndarray]:
    training = Training(recipe, prepare(recipe), ALONE, Watcher())
    training.saver = None
    pairs = max(training.batches.plan(0), key=len)
    assert len(pairs) > 10
    parts = training.batches.of_update(step=1, epoch=0, pairs=pairs)
    assert len(parts) == recipe.train.accumulate
    training.optimiser.update(1, parts)
    return {
        name: parameter.grad.double().numpy()
        for name, parameter in training.model.named_parameters()
        if parameter.grad is not None
    }


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_do_not_depend_on_the_number_of_parts(kind: str, tmp_path: Path) -> None:
    given = (*RANDOM, *KINDS[kind])
    recipe = write_corpus(tmp_path)
    whole = gradients_of_one_update(recipe_of(recipe, tmp_path / "run", *given))
    for parts in (2, 3):
        split = gradients_of_one_update(
            recipe_of(recipe, tmp_path / "run", *given, f"train.accumulate={parts}")
        )
        assert split.keys() == whole.keys()
        for name in whole:
            np.testing.assert_allclose(split[name], whole[name], rtol=0, atol=2e-6, err_msg=name)


def test_so_it_is_for_images(tmp_path: Path) -> None:
    recipe = write_picture_corpus(tmp_path)
    whole, split = (
        gradients_of_one_update(recipe_of(recipe, tmp_path / "run", *RANDOM, f"train.accumulate={parts}"))
        for parts in (1, 3)
    )
    for name in whole:
        np.testing.assert_allclose(split[name], whole[name], rtol=0, atol=2e-6, err_msg=name)


def test_so_it_is_without_fast_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYORDER_KERNELS", "plain")
    recipe = write_corpus(tmp_path)
    whole, split = (
        gradients_of_one_update(recipe_of(recipe, tmp_path / "run", *RANDOM, f"train.accumulate={parts}"))
        for parts in (1, 3)
    )
    for name in whole:
        np.testing.assert_allclose(split[name], whole[name], rtol=0, atol=2e-6, err_msg=name)


def test_another_update_draws_other_numbers(tmp_path: Path) -> None:
    recipe = recipe_of(write_corpus(tmp_path), tmp_path / "run", *RANDOM, "order.name=l2r")
    losses = []
    for step in (1, 2):
        training = Training(recipe, prepare(recipe), ALONE, Watcher())
        parts = training.batches.of_update(step=step, epoch=0, pairs=training.batches.plan(0)[0])
        losses.append(training.optimiser.update(step, parts).word)
    assert losses[0] != losses[1]
