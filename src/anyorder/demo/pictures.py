"""The demo's own corpus: small pictures of coloured shapes, and captions that say what is where.

A picture is a 3 × 3 grid of cells, two or three of which hold a figure. Each figure's position and colour are
jittered, and the background is shaded and noisy. The caption follows from the scene alone. Its subject is the
first figure, row by row from the top left; the others stand right of it in its row, or below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

GRID, CELL = 3, 16
SIDE = GRID * CELL


# Names, and red, green and blue from 0 to 255.
COLOURS = {
    "red": (205, 35, 40),
    "orange": (240, 130, 20),
    "yellow": (235, 210, 40),
    "green": (40, 150, 60),
    "blue": (40, 90, 210),
    "purple": (130, 50, 170),
    "black": (30, 30, 35),
}
SHAPES = ("circle", "square", "triangle", "star", "ring", "cross")
SIZES = {"large": 6.9, "small": 4.3}  # radius in pixels


# Standardise pixels to a mean of about 0 and a variance of about 1; measured once on many pictures.
PIXEL_MEAN, PIXEL_SPREAD = 215.0, 42.0


@dataclass(frozen=True, order=True)
class Figure:
    """A shape in a cell of the grid, rows and columns counted from the top left."""

    row: int
    column: int
    colour: str
    shape: str
    size: str


Scene = tuple[Figure, ...]  # from the top left on, so that equal scenes compare equal


@dataclass(frozen=True)
class Scenes:
    """Distinct scenes with their pictures and captions."""

    contents: list[Scene]
    pictures: NDArray[np.uint8]  # (count, SIDE, SIDE, 3)
    captions: list[str]

    def __len__(self) -> int:
        return len(self.contents)

    def split(self, *, held_out: int) -> tuple[Self, Self]:
        """Split off the last `held_out` scenes and return both parts."""
        cut = len(self) - held_out
        return self._part(slice(cut)), self._part(slice(cut, None))

    def _part(self, which: slice) -> Self:
        return replace(
            self,
            contents=self.contents[which],
            pictures=self.pictures[which],
            captions=self.captions[which],
        )


def draw_scenes(count: int, seed: int) -> Scenes:
    """Draw `count` different scenes; the same seed gives the same scenes."""
    random = np.random.default_rng(seed)
    found: dict[Scene, None] = {}  # a set that keeps its order
    while len(found) < count:
        found[_random_scene(random)] = None
    contents = list(found)
    return Scenes(
        contents, pictures=_paint(contents, random), captions=[caption(scene) for scene in contents]
    )


def patches(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The features that a model reads: one vector a cell, its pixels at half resolution.

    pictures: (count, SIDE, SIDE, 3); returns (count, GRID², (CELL / 2)² · 3), cells row by row.
    """
    half = CELL // 2
    coarse = pictures.reshape(-1, SIDE // 2, 2, SIDE // 2, 2, 3).mean(axis=(2, 4), dtype=np.float32)
    cells = coarse.reshape(-1, GRID, half, GRID, half, 3).swapaxes(2, 3)
    features = cells.reshape(-1, GRID * GRID, half * half * 3)
    return (features - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_SPREAD)


# Captions


def caption(scene: Scene) -> str:
    """Describe the scene in one English sentence."""
    subject, *others = scene
    return f"{_noun(subject)} is " + " and ".join(
        f"{_relation(subject, other)} {_noun(other)}" for other in others
    )


def _relation(figure: Figure, later: Figure) -> str:
    """How a figure stands to one that comes later, row by row from the top left."""
    return "left of" if figure.row == later.row else "above"


def _noun(figure: Figure) -> str:
    return f"a {figure.size} {figure.colour} {figure.shape}"


# Scenes and pixels. M figures of one shape


def _random_scene(random: np.random.Generator) -> Scene:
    count = 2 if random.random() < 0.4 else 3
    cells = random.permutation(GRID * GRID)[:count]
    return tuple(
        sorted(
            Figure(*divmod(int(cell), GRID), *(_pick(names, random) for names in (COLOURS, SHAPES, SIZES)))
            for cell in cells
        )
    )


def _pick(names: Iterable[str], random: np.random.Generator) -> str:
    choices = list(names)
    return choices[random.integers(len(choices))]


def _paint(contents: Sequence[Scene], random: np.random.Generator) -> NDArray[np.uint8]:
    canvas = _backgrounds(len(contents), random)
    cells = canvas.reshape(-1, GRID, CELL, GRID, CELL, 3)  # a view: painting a cell paints the canvas
    for shape, outline in _OUTLINES.items():
        found = [
            (number, figure)
            for number, scene in enumerate(contents)
            for figure in scene
            if figure.shape == shape
        ]
        numbers = [number for number, _ in found]
        rows = [figure.row for _, figure in found]
        columns = [figure.column for _, figure in found]
        coverage = _coverage(outline, [SIZES[figure.size] for _, figure in found], random)
        colours = np.array([COLOURS[figure.colour] for _, figure in found], dtype=np.float32).reshape(-1, 3)
        colours += random.normal(scale=9, size=colours.shape)
        below = cells[numbers, rows, :, columns]  # (M, CELL, CELL, 3)
        cells[numbers, rows, :, columns] = below + coverage * (colours[:, None, None] - below)
    canvas += 6 * random.standard_normal((*canvas.shape[:-1], 1), dtype=np.float32)  # grain
    return np.clip(canvas, 0, 255, out=canvas).astype(np.uint8)


def _backgrounds(count: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Pale backgrounds, each with its own tone and a shade in its own direction."""
    tone = random.uniform(215, 240, size=(count, 1, 1, 3)).astype(np.float32)
    slope = random.uniform(-12, 12, size=(2, count, 1, 1, 1)).astype(np.float32)
    across = np.linspace(-1, 1, SIDE, dtype=np.float32)
    shade = slope[0] * across[:, None, None] + slope[1] * across[None, :, None]  # (count, SIDE, SIDE, 1)
    grounds: NDArray[np.float32] = tone + shade
    return grounds


Pixels = NDArray[np.float64]  # (M, CELL, CELL)
Outline = Callable[[Pixels, Pixels, Pixels], Pixels]


def _coverage(outline: Outline, radii: Sequence[float], random: np.random.Generator) -> NDArray[np.float32]:
    """How much of every pixel a figure covers, (M, CELL, CELL, 1): soft edges, at most a pixel off centre."""
    radius = np.array(radii).reshape(-1, 1, 1)
    shift = random.uniform(-1, 1, size=(2, len(radii), 1, 1))
    axis = np.arange(CELL) - (CELL - 1) / 2
    distance = outline(axis[None, None, :] + shift[0], axis[None, :, None] + shift[1], radius)
    return np.clip(0.5 - distance, 0, 1)[..., None].astype(np.float32)


# Signed distances from a shape's edge, negative inside. x to the right, y down, (M, CELL, CELL); r (M, 1, 1).


def _circle(x: Pixels, y: Pixels, r: Pixels) -> Pixels:
    return np.hypot(x, y) - r


def _square(x: Pixels, y: Pixels, r: Pixels) -> Pixels:
    return np.maximum(abs(x), abs(y)) - 0.85 * r


def _triangle(x: Pixels, y: Pixels, r: Pixels) -> Pixels:
    slanted = (math.sqrt(3) * abs(x) - y) / 2
    return np.maximum(slanted - 0.6 * r, y - 0.8 * r)


def _star(x: Pixels, y: Pixels, r: Pixels) -> Pixels:
    # All ten half-points are one, mirrored: fold the plane until an edge runs from the tip to the notch.
    tip_angle = 2 * math.pi / 5
    angle = np.abs((np.arctan2(x, -y) + tip_angle / 2) % tip_angle - tip_angle / 2)
    along, aside = np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)
    tip, notch = 1.1 * r, 0.45 * r
    notch_along, notch_aside = notch * math.cos(tip_angle / 2), notch * math.sin(tip_angle / 2)
    normal = np.hypot(tip - notch_along, notch_aside)
    return ((along - tip) * notch_aside + aside * (tip - notch_along)) / normal


def _ring(x: Pixels, y: Pixels, r: Pixels) -> Pixels:
    return abs(np.hypot(x, y) - 0.78 * r) - 0.22 * r


def _cross(x: Pixels, y: Pixels, r: Pixels) -> Pixels:
    longer, shorter = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    return np.maximum(longer - r, shorter - 0.28 * r)


_OUTLINES: dict[str, Outline] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "ring": _ring,
    "cross": _cross,
}
