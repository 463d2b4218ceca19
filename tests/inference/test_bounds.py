"""Long sources and targets are refused or cut, by file and line, before they take memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from corpora import assert_one_line_refusal, call_here, learned, write_lines

import anyorder
from anyorder.errors import UserError
from anyorder.inference.bounds import check_fits, encoding_bytes
from anyorder.inference.generator import Generator

LONG = " ".join(["a"] * 180_000)


@pytest.fixture(scope="module")
def model() -> Generator:
    return anyorder.load(learned().run, device="cpu")


def test_a_line_of_180_000_words_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = write_lines(tmp_path / "lines.txt", ["a b", LONG])
    short = write_lines(tmp_path / "short.txt", ["a b", "a"])
    wanted = "of 180,000 tokens, but decode.max_{}"
    run = learned().run
    answer = call_here(capsys, "generate", run, lines, "--at-once", "2")
    assert_one_line_refusal(answer, f"{lines}:2: source {wanted.format('source = 2,048')}")
    for source, target, side in ((lines, short, "source"), (short, lines, "target")):
        answer = call_here(capsys, "score", run, "--source", source, "--target", target)
        assert_one_line_refusal(answer, f"{lines}:2: {side} {wanted.format(f'{side} = 2,048')}")
    requests = write_lines(tmp_path / "requests.jsonl", [f'{{"source": "{LONG}", "must": ["a"]}}'])
    answer = call_here(capsys, "complete", run, requests)
    assert f"{requests}:1: source: 180,000 tokens" in answer.stderr.decode()
    assert answer.returncode == 2


def test_it_is_cut_if_asked(model: Generator) -> None:
    cut, short = (model.generate(source, max_source=3, cut=True).best for source in ("a b c d e f", "a b c"))
    assert cut == short
    whole, part = (model.score("a b", target, max_target=2, cut=True).score for target in ("c b a", "c b"))
    assert whole == part


def test_the_bound_is_a_bound(model: Generator) -> None:
    model.generate("a b c", max_source=3)
    with pytest.raises(UserError, match=r"^source 1: 4 tokens, but decode.max_source = 3"):
        model.generate("a b c d", max_source=3)
    with pytest.raises(UserError, match=r"^target 2: 3 tokens, but decode.max_target = 2"):
        model.score(["a", "b"], ["a b", "a b c"], max_target=2)


def test_what_does_not_fit_is_refused_beforehand(model: Generator) -> None:
    with pytest.raises(UserError, match=r"need about .* GB of memory, but .* GB are free"):
        model.generate(" ".join(["a"] * 90_000), max_source=100_000)
    needed = encoding_bytes(model.trained.model.settings, source=100_000)
    with pytest.raises(UserError):
        check_fits(needed, source=100_000, target=1, device=torch.device("cpu"))
