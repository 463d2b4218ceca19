"""features: compute feature vectors of photos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from anyorder.cli.options import DEVICE
from anyorder.cli.output import results
from anyorder.cli.progress import Watcher
from anyorder.errors import UserError

if TYPE_CHECKING:
    from anyorder.data.features import Grid, NamedVectors


SKIP = "--skip-unreadable"


def features(
    photos: list[Path] = typer.Argument(
        help="Photos, folders or .txt lists of them; or one .npz of named vectors, to convert it to .npy.",
        show_default=False,
    ),
    output: Path = typer.Option(
        ..., "--output", help="The .npy file to write; .npy.json beside it lists the names of the photos."
    ),
    skip_unreadable: bool = typer.Option(False, SKIP, help="Skip photos that can't be read."),
    device: str | None = DEVICE,
) -> None:
    """Turn each photo into 49 feature vectors of width 1280, with EfficientNet-Lite0.

    Photos keep the order given; those of a folder are sorted by name. A model that is trained on the vectors
    can read photos.

    Example: `anyorder features photos/ --output photos.npy`
    """
    if output.suffix != ".npy":
        raise UserError(f"--output {output}: must end in .npy")
    with Watcher() as watcher:
        if any(path.suffix == ".npz" for path in photos):
            grid = _converted(photos, output, watcher=watcher)
        else:
            grid = _extracted(photos, output, skip=skip_unreadable, device=device, watcher=watcher)
    results.print(
        f"wrote {output}: {len(grid):,} images, {grid.vectors} vectors of width {grid.width} each",
        soft_wrap=True,
    )


def _extracted(inputs: list[Path], output: Path, *, skip: bool, device: str | None, watcher: Watcher) -> Grid:
    from anyorder.data.features import save_grid
    from anyorder.data.photos import find_photos
    from anyorder.inference.image_encoder import EXTRACTOR, Extractor
    from anyorder.system.devices import pick_device

    def unreadable(error: UserError) -> None:
        if not skip:
            raise UserError(f"{error}; {SKIP} skips such photos")
        watcher.note(f"left out: {error}")

    photos = find_photos(inputs)
    extractor = Extractor.load(device=pick_device(device or "auto"))
    images = extractor.extract(photos, unreadable=unreadable)
    return save_grid(output, _watched(images, total=len(photos), watcher=watcher), extractor=EXTRACTOR)


def _converted(inputs: list[Path], output: Path, *, watcher: Watcher) -> Grid:
    from anyorder.data.features import NamedVectors, save_grid
    from anyorder.data.readers import File, image_rows, open_features

    if len(inputs) > 1:
        raise UserError(f"{', '.join(map(str, inputs))}: an .npz must be given alone")
    given = File(inputs[0])
    grid = open_features(given)
    images = (NamedVectors(name, grid[row]) for name, row in image_rows(given).items())
    return save_grid(output, _watched(images, total=len(grid), watcher=watcher))


def _watched(images: Iterable[NamedVectors], *, total: int, watcher: Watcher) -> Iterator[NamedVectors]:
    for done, image in enumerate(images, start=1):
        yield image
        watcher.preparing("reading images", done, total)
