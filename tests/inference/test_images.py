"""Captions of photos, by the command line and by the library."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from corpora import assert_one_line_refusal, call, call_here, json_lines, learn, learned, write_lines

import anyorder
from anyorder.data.readers import File, open_features
from anyorder.errors import UserError
from anyorder.inference.image_encoder import EXTRACTOR, WEIGHTS_PACKAGE

Image = pytest.importorskip("PIL.Image")
pytest.importorskip(WEIGHTS_PACKAGE)

Capture = pytest.CaptureFixture[str]

RECIPE = """
[data]
root = "{folder}"
cache = "cache"
train = {{ features = "photos.npy", captions = "captions.tsv" }}
dev = {{ features = "photos.npy", captions = "captions.tsv" }}

[text]
unit = "words"
target = {{ split = "spaces" }}

[model]
width = 32
hidden = 32
heads = 2
encoder_layers = 1
decoder_layers = 1
dropout = 0

[train]
steps = 40
batch_tokens = 220
lr = 5e-3
warmup = 5
schedule = "constant"
validate_every = 20
device = "cpu"
"""
COLOURS = ("blue", "green", "red", "white")  # as files come by name


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a photo of each colour."""
    folder = tmp_path_factory.mktemp("photos")
    for colour in COLOURS:
        Image.new("RGB", (50, 40), colour).save(folder / f"{colour}.png")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, photos: Path) -> Path:
    """A model that names colours, trained by the commands that users run."""
    folder = tmp_path_factory.mktemp("captions")
    answer = call("features", photos, "--output", folder / "photos.npy")
    assert answer.returncode == 0, answer.stderr
    captions = [f"{colour}.png\t{text} {colour}" for colour in COLOURS for text in ("it is", "this is")]
    write_lines(folder / "captions.tsv", captions)
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(folder=folder))
    learn(recipe, folder / "run")
    return folder / "run"


# Features


def test_features_of_photos_are_named_and_in_order(capsys: Capture, tmp_path: Path, photos: Path) -> None:
    given = [photos / "white.png", photos / "blue.png"]
    answer = call_here(capsys, "features", *given, "--output", tmp_path / "two.npy")
    assert answer.stdout.decode() == f"wrote {tmp_path}/two.npy: 2 images, 49 vectors of width 1280 each\n"
    two = np.load(tmp_path / "two.npy")
    assert (two.shape, two.dtype) == ((2, 49, 1280), np.float16)
    grid = open_features(File(tmp_path / "two.npy"))
    assert (grid.names, grid.extractor) == (("white.png", "blue.png"), EXTRACTOR)
    assert not np.allclose(two[0], two[1], atol=0.1)


def test_unreadable_photos_are_refused_or_left_out(capsys: Capture, tmp_path: Path, photos: Path) -> None:
    folder = shutil.copytree(photos, tmp_path / "photos")
    (folder / "broken.jpg").write_text("no photo")
    output = tmp_path / "all.npy"
    answer = call_here(capsys, "features", folder, "--output", output)
    assert_one_line_refusal(answer, "broken.jpg: can't be read as a photo", "--skip-unreadable skips")
    assert not output.exists()
    answer = call_here(capsys, "features", folder, "--output", output, "--skip-unreadable")
    assert answer.returncode == 0
    assert answer.stderr.decode().startswith("left out: ")
    assert len(np.load(output)) == len(COLOURS)


def test_named_vectors_of_others_become_an_npy(capsys: Capture, tmp_path: Path) -> None:
    numbers = np.array([[[[3]]], [[[5]]]], dtype=np.uint8)
    np.savez(tmp_path / "grid.npz", names=["b", "a"], grid=numbers, scale=0.5, zero_point=1)
    answer = call_here(capsys, "features", tmp_path / "grid.npz", "--output", tmp_path / "grid.npy")
    assert answer.returncode == 0, answer.stderr
    assert np.load(tmp_path / "grid.npy").tolist() == [[[1.0]], [[2.0]]]
    grid = open_features(File(tmp_path / "grid.npy"))
    assert (grid.names, grid.extractor) == (("b", "a"), None)


def test_wrong_flags_are_refused(capsys: Capture, tmp_path: Path, photos: Path) -> None:
    answer = call_here(capsys, "features", photos, "--output", tmp_path / "grid.npz")
    assert_one_line_refusal(answer, "--output", "must end in .npy")
    answer = call_here(capsys, "features", photos, tmp_path / "grid.npz", "--output", tmp_path / "grid.npy")
    assert_one_line_refusal(answer, "grid.npz: an .npz must be given alone")


# Captions


def test_photos_are_described_by_command_and_library_alike(capsys: Capture, run: Path, photos: Path) -> None:
    paths = [photos / f"{colour}.png" for colour in reversed(COLOURS)]
    rows = json_lines(call_here(capsys, "generate", run, *paths, "--json"))
    assert [row["source"] for row in rows] == [str(path) for path in paths]
    texts = [row["hypotheses"][0]["text"] for row in rows]
    assert [text.split()[-1] for text in texts] == list(reversed(COLOURS))
    model = anyorder.load(run, device="cpu")
    assert [hypotheses[0].text for hypotheses in model.generate(paths)] == texts
    assert [
        hypotheses[0].text for hypotheses in model.generate(np.load(run.parent / "photos.npy")[::-1])
    ] == texts


def test_photos_and_vectors_may_be_mixed_and_photos_share_names(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    model = anyorder.load(run, device="cpu")
    other = Path(shutil.copy(photos / "red.png", tmp_path / "blue.png"))
    vectors = np.load(run.parent / "photos.npy")[COLOURS.index("green")]
    answers = model.generate([photos / "blue.png", vectors, other])
    assert [hypotheses[0].text.split()[-1] for hypotheses in answers] == ["blue", "green", "red"]


def test_what_a_model_can_not_read_is_said_in_a_line(capsys: Capture, run: Path, photos: Path) -> None:
    photo = photos / "red.png"
    assert_one_line_refusal(
        call_here(capsys, "generate", learned().run, photo), "reads text, not photos such as"
    )
    model = anyorder.load(run, device="cpu")
    with pytest.raises(
        UserError, match=r"reads photos \(pathlib\.Path\) or feature vectors of width 1280, not text"
    ):
        model.generate(["red.png"])
    with pytest.raises(UserError, match="sources: one PosixPath given, must be a list"):
        next(model.stream(photo))
    assert model.generate(photo) == model.generate([photo])[0]


def test_a_model_of_unknown_features_reads_no_photos(run: Path, photos: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "run")
    configuration = other / "config.json"
    known = f'"extractor": "{EXTRACTOR}"'
    text = configuration.read_text()
    assert known in text
    configuration.write_text(text.replace(known, '"extractor": null'))
    with pytest.raises(
        UserError, match=r"this model can't read photos: .*give \.npy feature vectors of width 1280"
    ):
        anyorder.load(other, device="cpu").generate([photos / "red.png"])
