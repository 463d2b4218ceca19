"""The speed-ups for CPUs compute what their plain twins compute."""

from __future__ import annotations

import pytest
import torch
from conftest import random_sources, tiny_model

from anyorder import config
from anyorder.data.batches import Example, collate
from anyorder.decoding.decode import decode
from anyorder.models.kernels.packed import PackedLinear, can_pack, pack
from anyorder.models.kernels.training import Dropout, word_scores
from anyorder.models.loss import batch_loss

both = pytest.mark.parametrize("kernels", ["fast", "plain"])


def test_word_scores_and_their_gradient_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for kernels in ("fast", "plain"):
        monkeypatch.setenv("ANYORDER_KERNELS", kernels)
        logits = torch.randn(7, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        logits.requires_grad_()
        word, mean = word_scores(logits, torch.arange(7))
        (2.0 * word + 0.5 * mean).sum().backward()
        found.append((word.detach(), mean.detach(), logits.grad))
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain)


@both
def test_dropout_keeps_the_mean(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYORDER_KERNELS", kernels)
    torch.manual_seed(0)
    dropped = Dropout(0.25).train()(torch.ones(200_000))
    assert float((dropped == 0).double().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("search", ["two-step", "joint"])
def test_decoding_finds_the_same_hypotheses(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(words=40, dtype=torch.float32)
    source, mask = random_sources(lengths=[4, 2, 3])
    settings = config.Decode(search=search, beam=3, n_best=3, max_length=6)
    found = []
    for kernels in ("fast", "plain"):
        monkeypatch.setenv("ANYORDER_KERNELS", kernels)
        found.append(decode(model, source, mask, settings=settings, limits=torch.full((3,), 6)))
    for fast, plain in zip(*found, strict=True):
        assert [one.tokens for one in fast] == [one.tokens for one in plain]
        assert [one.score for one in fast] == pytest.approx([one.score for one in plain], abs=1e-4)


def test_the_loss_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(words=5)
    example = Example(*(torch.tensor(ids).int().numpy() for ids in ([5, 6], [6, 5, 7], [2, 1, 3])))
    losses = []
    for kernels in ("fast", "plain"):
        monkeypatch.setenv("ANYORDER_KERNELS", kernels)
        losses.append(float(batch_loss(model, collate([example]), label_smoothing=0.1).objective.detach()))
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.skipif(not can_pack(), reason="this build of torch has no oneDNN")
def test_plain_kernels_leave_linear_layers_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyorder.models.kernels.packed.LARGE", 1)
    for kernels, packed in (("plain", False), ("fast", True)):
        monkeypatch.setenv("ANYORDER_KERNELS", kernels)
        model = tiny_model(dtype=torch.float32)
        pack(model, precision="fp32")
        assert any(isinstance(module, PackedLinear) for module in model.modules()) == packed
