"""Scenes, captions and pictures of the demo agree with each other."""

import numpy as np
import pytest
from numpy.typing import NDArray

from anyorder.demo.pictures import (
    COLOURS,
    GRID,
    SHAPES,
    SIDE,
    SIZES,
    Figure,
    Scene,
    Scenes,
    caption,
    draw_scenes,
    patches,
)


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return draw_scenes(1200, seed=1)


def test_same_seed_same_scenes_and_another_seed_others() -> None:
    first, again, other = draw_scenes(20, seed=5), draw_scenes(20, seed=5), draw_scenes(20, seed=6)
    assert first.contents == again.contents
    assert first.captions == again.captions
    np.testing.assert_array_equal(first.pictures, again.pictures)
    assert first.contents != other.contents


def test_caption_is_a_function_of_the_scene(scenes: Scenes) -> None:
    assert scenes.captions == [caption(scene) for scene in scenes.contents]


def test_no_scene_comes_twice_and_the_split_keeps_them_apart(scenes: Scenes) -> None:
    assert len(set(scenes.contents)) == len(scenes) == 1200
    train, held_out = scenes.split(held_out=200)
    assert (len(train), len(held_out)) == (1000, 200)
    assert not set(train.contents) & set(held_out.contents)
    assert train.captions + held_out.captions == scenes.captions
    np.testing.assert_array_equal(np.concatenate([train.pictures, held_out.pictures]), scenes.pictures)


def test_holding_out_nothing_or_everything() -> None:
    scenes = draw_scenes(3, seed=1)
    for held_out in (0, 3):
        train, rest = scenes.split(held_out=held_out)
        assert (len(train), len(rest)) == (3 - held_out, held_out)


def test_two_or_three_figures_in_cells_of_their_own(scenes: Scenes) -> None:
    for scene in scenes.contents:
        cells = {(figure.row, figure.column) for figure in scene}
        assert len(cells) == len(scene)
        assert len(scene) in (2, 3)


def test_captions_are_short_and_of_few_words(scenes: Scenes) -> None:
    words = {word for sentence in scenes.captions for word in sentence.split()}
    lengths = {len(sentence.split()) for sentence in scenes.captions}
    assert len(words) <= 40
    assert {*COLOURS, *SHAPES, *SIZES, "above", "left"} <= words
    assert min(lengths) >= 7
    assert max(lengths) <= 18


def scene_of(*rows: str) -> Scene:
    """A scene drawn as a grid of "size colour shape" and dots, cells apart by commas."""
    return tuple(
        Figure(row=row, column=column, colour=colour, shape=shape, size=size)
        for row, line in enumerate(rows)
        for column, cell in enumerate(line.split(","))
        if cell.strip() != "."
        for size, colour, shape in [cell.split()]
    )


@pytest.mark.parametrize(
    ("scene", "sentence"),
    [
        (
            scene_of("., ., .", "large red circle, ., small blue star", "., ., ."),
            "a large red circle is left of a small blue star",
        ),
        (
            scene_of("., ., large blue star", "., large red circle, .", "., ., ."),
            "a large blue star is above a large red circle",
        ),
        (
            scene_of("., small red ring, small red ring", "., ., .", "large green cross, ., ."),
            "a small red ring is left of a small red ring and above a large green cross",
        ),
    ],
)
def test_captions_by_example(scene: Scene, sentence: str) -> None:
    assert caption(scene) == sentence


def test_pictures_have_their_shape_and_use_their_range(scenes: Scenes) -> None:
    assert scenes.pictures.shape == (1200, SIDE, SIDE, 3)
    assert scenes.pictures.dtype == np.uint8
    assert scenes.pictures.min() < 40
    assert scenes.pictures.max() > 230


def test_patches_are_the_cells_row_by_row() -> None:
    pictures = np.zeros((1, SIDE, SIDE, 3), dtype=np.uint8)
    pictures[0, :16, 16:32] = 200  # the second cell of the first row
    features = patches(pictures)
    assert features.shape == (1, 9, 192)
    assert features.dtype == np.float32
    lit = [len(np.unique(cell)) == 1 and cell[0] > features.min() for cell in features[0]]
    assert lit == [False, True, *[False] * 7]


def test_patches_have_about_unit_variance(scenes: Scenes) -> None:
    features = patches(scenes.pictures)
    assert abs(features.mean()) < 0.2
    assert 0.8 < features.std() < 1.2


def figures_and_patches(scenes: Scenes) -> tuple[list[Figure], NDArray[np.float32]]:
    features = patches(scenes.pictures)
    found = [(number, figure) for number, scene in enumerate(scenes.contents) for figure in scene]
    cells = [features[number, figure.row * GRID + figure.column] for number, figure in found]
    return [figure for _, figure in found], np.stack(cells)


def least_squares_accuracy(inputs: NDArray[np.float64], labels: list[str], *, train: int) -> float:
    """How often a linear classifier, fitted on the first examples, is right about the rest."""
    names = sorted(set(labels))
    classes = np.array([names.index(label) for label in labels])
    inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
    learnt = inputs[:train]
    ridge = 300 * np.eye(inputs.shape[1])
    weights = np.linalg.solve(learnt.T @ learnt + ridge, learnt.T @ np.eye(len(names))[classes[:train]])
    return float(((inputs[train:] @ weights).argmax(axis=1) == classes[train:]).mean())


def test_shape_and_size_can_be_read_off_a_patch(scenes: Scenes) -> None:
    figures, cells = figures_and_patches(scenes)
    inputs, train = cells.astype(np.float64), len(figures) * 3 // 4
    assert least_squares_accuracy(inputs, [figure.shape for figure in figures], train=train) > 0.95
    assert least_squares_accuracy(inputs, [figure.size for figure in figures], train=train) > 0.95


def test_colour_can_be_read_off_a_patch(scenes: Scenes) -> None:
    figures, cells = figures_and_patches(scenes)
    pixels = cells.reshape(len(cells), -1, 3)  # (figures, pixels, 3)
    contrast = np.abs(pixels - pixels[:, :1]).sum(axis=2)  # with the corner, where no figure reaches
    clearest = np.argsort(contrast, axis=1)[:, -12:]
    inks = np.take_along_axis(pixels, clearest[:, :, None], axis=1).mean(axis=1)
    palette = patches(
        np.array(list(COLOURS.values()), dtype=np.uint8)[:, None, None].repeat(SIDE, 1).repeat(SIDE, 2)
    )
    distances = np.linalg.norm(inks[:, None] - palette[None, :, 0, :3], axis=2)
    nearest = [list(COLOURS)[number] for number in distances.argmin(axis=1)]
    assert np.mean([name == figure.colour for name, figure in zip(nearest, figures, strict=True)]) > 0.9
