from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyorder.config.recipe import Recipe
from anyorder.data.readers import (
    Fault,
    File,
    Files,
    Pair,
    check_features,
    content_digest,
    count_pairs,
    in_chunks,
    open_features,
    raw_pairs,
    read_lines,
    read_pairs,
    side_fault,
    split_files,
    stream_pairs,
)
from anyorder.errors import UserError

texts = st.text(st.characters(exclude_characters="\n\r\ufeff", exclude_categories=["Cs"]))
PACKINGS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def recipe_of(folder: Path, **train: str) -> Recipe:
    return Recipe.model_validate({"run": "run", "data": {"root": folder, "train": train, "dev": train}})


def text_files(folder: Path, *, source: bytes, target: bytes) -> Files:
    (folder / "train.de").write_bytes(source)
    (folder / "train.en").write_bytes(target)
    return split_files(recipe_of(folder, source="train.de", target="train.en"), "train")


def jsonl_recipe(folder: Path, *lines: str) -> Recipe:
    (folder / "pairs.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return recipe_of(folder, jsonl="pairs.jsonl")


def features_files(folder: Path, *, target: str = "one\ntwo\nthree\n") -> Files:
    (folder / "train.en").write_text(target, encoding="utf-8")
    return split_files(recipe_of(folder, features="train.npy", target="train.en"), "train")


# Laws


@given(st.lists(texts), st.sampled_from(list(PACKINGS)))
def test_reading_gives_back_the_lines_written(lines: list[str], suffix: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / f"lines.txt{suffix}"
        path.write_bytes(PACKINGS[suffix]("".join(f"{line}\n" for line in lines).encode()))
        assert list(read_lines(path)) == list(enumerate(lines, start=1))


@given(st.lists(st.tuples(texts, texts), min_size=1))
def test_jsonl_and_two_files_give_the_same_pairs(pairs: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = "".join(f"{source}\n" for source, _ in pairs)
        targets = "".join(f"{target}\n" for _, target in pairs)
        files = text_files(folder, source=sources.encode(), target=targets.encode())
        lines = [json.dumps({"source": source, "target": target}) for source, target in pairs]
        expected = [
            Pair(line=line, source=source, target=target)
            for line, (source, target) in enumerate(pairs, start=1)
        ]
        assert list(read_pairs(files)) == raw_pairs(jsonl_recipe(folder, *lines), "train") == expected
        assert count_pairs(files) == len(pairs)


@given(st.lists(st.integers()), st.integers(1, 5))
def test_chunks_are_what_is_given_in_order(entries: list[int], size: int) -> None:
    chunks = list(in_chunks(iter(entries), size=size))
    assert [entry for chunk in chunks for entry in chunk] == entries
    assert all(len(chunk) == size for chunk in chunks[:-1])
    assert all(1 <= len(chunk) <= size for chunk in chunks)


def test_a_digest_follows_the_content_alone(tmp_path: Path) -> None:
    for name, content in {"one": "a", "copy": "a", "other": "b"}.items():
        (tmp_path / name).write_text(content)
    one, copy, other = (content_digest(File(path=tmp_path / name)) for name in ("one", "copy", "other"))
    assert one == copy != other


# Lines


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("plain", b"a\nb\n", ["a", "b"]),
        ("no-last-end", b"a\nb", ["a", "b"]),
        ("windows", b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        ("marked", b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        ("separators", "a\u2028b\x0bc\x85d\n".encode(), ["a\u2028b\x0bc\x85d"]),
        ("empty", b"", []),
    ],
)
def test_reading(tmp_path: Path, name: str, content: bytes, lines: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert [text for _, text in read_lines(path)] == lines


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("latin.txt", b"good\nM\xe4rz\n", ":2: not valid UTF-8 (byte 0xe4 at byte 2 of the line)"),
        ("missing.txt", None, ": no such file (data.train.source)"),
        ("cut.gz", gzip.compress(b"a\nb\n", mtime=0)[:-9], ": not a whole .gz file (data.train.source)"),
        ("wrong.xz", b"plain text\n", ": not a whole .xz file (data.train.source)"),
        ("", None, ": Is a directory (data.train.source)"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes | None, complaint: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        list(read_lines(path, key="data.train.source"))
    assert str(raised.value) == f"{path}{complaint}"


def test_a_file_that_is_not_from_a_recipe_is_named_without_a_key(tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        list(read_lines(tmp_path / "missing"))
    assert str(raised.value) == f"{tmp_path / 'missing'}: no such file"


# Pairs


def test_only_the_lines_asked_for(tmp_path: Path) -> None:
    text_files(tmp_path, source=b"a\n\xe4\nc\n", target=b"A\nB\nC\n")
    recipe = recipe_of(tmp_path, source="train.de", target="train.en")
    assert raw_pairs(recipe, "train", lines=[3]) == [Pair(line=3, source="c", target="C")]
    assert raw_pairs(recipe, "train", lines=[]) == []
    with pytest.raises(UserError, match=r"train\.de:2: not valid UTF-8"):
        raw_pairs(recipe, "train")


def test_pairs_are_streamed(tmp_path: Path) -> None:
    text_files(tmp_path, source=b"a\n\xe4\n", target=b"A\nB\n")
    pairs = stream_pairs(recipe_of(tmp_path, source="train.de", target="train.en"), "train")
    assert next(pairs) == Pair(line=1, source="a", target="A")
    with pytest.raises(UserError, match=r"train\.de:2: not valid UTF-8"):
        next(pairs)


@pytest.mark.parametrize(
    ("source", "target", "blamed"),
    [(b"\xe4\n", b"A\n", "source"), (b"a\n", b"\xe4\n", "target"), (b"\xe4\n", b"\xe4\n", "source")],
)
def test_an_unreadable_side_makes_its_pair_a_fault(
    tmp_path: Path, source: bytes, target: bytes, blamed: str
) -> None:
    files = text_files(tmp_path, source=source, target=target)
    (fault,) = read_pairs(files)
    assert isinstance(fault, Fault)
    assert (fault.path, fault.line, fault.reason) == (files[blamed].path, 1, "not valid UTF-8")


def test_files_of_unequal_length_are_named_with_their_counts(tmp_path: Path) -> None:
    files = text_files(tmp_path, source=b"a\nb\nc\n", target=b"A\nB\n")
    with pytest.raises(UserError) as raised:
        raw_pairs(recipe_of(tmp_path, source="train.de", target="train.en"), "train")
    assert str(raised.value) == (
        f"{files['source'].path} has 3 lines but {files['target'].path} has 2; "
        "data.train.source and data.train.target must have equally many"
    )


def test_a_split_that_the_recipe_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.test: missing; give data\.test\.source"):
        split_files(recipe_of(tmp_path, jsonl="pairs.jsonl"), "test")


# JSONL


def test_keys_of_jsonl_come_in_any_order_and_others_are_ignored(tmp_path: Path) -> None:
    recipe = jsonl_recipe(tmp_path, '{"target": "two", "source": "zwei", "id": 7}')
    assert raw_pairs(recipe, "train") == [Pair(line=1, source="zwei", target="two")]


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (" ", "empty line", ""),
        ("{oops", "not valid JSON", "Expecting property name enclosed in double quotes at column 2"),
        ("[" * 100_000, "not valid JSON", "maximum recursion depth exceeded"),
        ("1" * 10_000, "not valid JSON", "Exceeds the limit (4300 digits)"),
        ('["eins", "one"]', "no JSON object", 'allowed: {"source": ..., "target": ...}'),
        ('{"source": "eins"}', 'no "target"', 'allowed: {"source": ..., "target": ...}'),
        ('{"source": 1, "target": "one"}', '"source" is no string', "given: 1"),
        (
            '{"source": "eins", "target": "\\ud83d"}',
            '"target" holds half of a surrogate pair',
            "which is no character",
        ),
    ],
)
def test_a_bad_line_of_jsonl_is_a_fault(tmp_path: Path, line: str, reason: str, detail: str) -> None:
    good = '{"source": "eins", "target": "one"}'
    recipe = jsonl_recipe(tmp_path, good, line, good)
    first, fault, last = read_pairs(split_files(recipe, "train"))
    assert (first.line, fault.line, last.line) == (1, 2, 3)
    assert isinstance(fault, Fault)
    assert (fault.path, fault.reason) == (tmp_path / "pairs.jsonl", reason)
    assert fault.detail.startswith(detail)
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'pairs.jsonl'}:2: {reason}")):
        raw_pairs(recipe, "train")


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \r\n\t"])
def test_blank_lines_at_the_end_of_jsonl_are_no_lines(tmp_path: Path, end: str) -> None:
    lines = '{"source": "eins", "target": "one"}\n\n{"source": "zwei", "target": "two"}'
    (tmp_path / "pairs.jsonl").write_bytes(f"{lines}{end}".encode())
    files = split_files(recipe_of(tmp_path, jsonl="pairs.jsonl"), "train")
    assert count_pairs(files) == 3
    assert [type(entry) for entry in read_pairs(files)] == [Pair, Fault, Pair]


# Faults


@pytest.mark.parametrize(
    ("detail", "in_two_files", "in_jsonl"),
    [
        ("", "train.en:4: empty line", "pairs.jsonl:4: empty line (target)"),
        ("blank", "train.en:4: empty line (blank)", "pairs.jsonl:4: empty line (target: blank)"),
    ],
)
def test_a_fault_of_a_side(detail: str, in_two_files: str, in_jsonl: str) -> None:
    two_files = {"source": File(path=Path("train.de")), "target": File(path=Path("train.en"))}
    jsonl = {"jsonl": File(path=Path("pairs.jsonl"))}
    for files, shown in ((two_files, in_two_files), (jsonl, in_jsonl)):
        assert str(side_fault(files, "target", line=4, reason="empty line", detail=detail)) == shown


@pytest.mark.parametrize(
    ("more", "others"), [(0, ""), (1, " (and 1 more bad line)"), (2, " (and 2 more bad lines)")]
)
def test_a_refusal_counts_the_other_bad_lines(more: int, others: str) -> None:
    fault = Fault(path=Path("train.de"), line=2, reason="empty line")
    assert str(fault.refusal(more=more)) == (
        f'train.de:2: empty line{others}; set data.bad_lines = "skip" to leave them out'
    )


# Image features


def test_features_stand_for_sources(tmp_path: Path) -> None:
    grid = np.arange(3 * 2 * 4, dtype=np.float32).reshape(3, 2, 4)
    np.save(tmp_path / "train.npy", grid)
    files = features_files(tmp_path)
    opened = open_features(files["features"])
    assert isinstance(opened.numbers, np.memmap)
    assert np.array_equal(list(opened), grid)
    assert count_pairs(files) == 3
    assert [(pair.source, pair.target) for pair in read_pairs(files) if isinstance(pair, Pair)] == [
        *((None, "one"), (None, "two"), (None, "three"))
    ]


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ((3, 8), "train.npy: has shape (3, 8); allowed: (lines, vectors, width) or (lines, rows, columns"),
        ((3, 0, 8), "train.npy: has shape (3, 0, 8); allowed: "),
        ((3, 4, 0), "train.npy: has shape (3, 4, 0); allowed: "),
        ((2, 4, 8), "train.npy has 2 lines but "),
    ],
)
def test_features_of_a_wrong_shape_are_refused(
    tmp_path: Path, shape: tuple[int, ...], complaint: str
) -> None:
    np.save(tmp_path / "train.npy", np.zeros(shape, dtype=np.float32))
    with pytest.raises(UserError, match=re.escape(complaint)):
        count_pairs(features_files(tmp_path))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (["a", "bc"], "holds values of type str64; allowed: real numbers"),
        ([True, False], "holds values of type bool; allowed: real numbers"),
        ([1j, 2], "holds values of type complex128; allowed: real numbers"),
        ([{}, None], "not an .npy or .npz file of numbers"),
    ],
)
def test_features_that_are_no_numbers_are_refused(
    tmp_path: Path, values: list[object], complaint: str
) -> None:
    np.save(tmp_path / "train.npy", np.array(values).reshape(2, 1, 1))
    with pytest.raises(UserError, match=re.escape(f"train.npy: {complaint} (data.train.features)")):
        open_features(features_files(tmp_path)["features"])


@given(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4), st.sampled_from([np.nan, np.inf, -np.inf]))
def test_the_first_vector_that_is_not_finite_is_named(
    row: int, vector: int, column: int, value: float
) -> None:
    grid = np.zeros((3, 4, 5), dtype=np.float16)
    with tempfile.TemporaryDirectory() as name:
        features = features_files(Path(name))["features"]
        np.save(features.path, grid)
        check_features(features)
        grid[row, vector, column] = grid[2, 3, 4] = value
        np.save(features.path, grid)
        with pytest.raises(UserError) as raised:
            check_features(features)
    assert str(raised.value) == (
        f"{features.path}: vector {vector + 1} of line {row + 1} isn't finite; "
        "allowed: no nan or inf (data.train.features)"
    )


def test_a_vector_far_into_a_large_file_is_named_as_well(tmp_path: Path) -> None:
    grid = np.zeros((9, 1, 1_000_000), dtype=np.float16)
    grid[7, 0, 3] = np.nan
    np.save(tmp_path / "train.npy", grid)
    with pytest.raises(UserError, match="vector 1 of line 8 isn't finite"):
        check_features(features_files(tmp_path)["features"])


def test_several_arrays_in_one_file_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "train.npy").open("wb") as file:
        np.savez(file, one=np.zeros((3, 4, 8)), other=np.zeros((3, 4, 8)))
    with pytest.raises(UserError, match=r"train\.npy: has no array 'names'; allowed: names, grid"):
        open_features(features_files(tmp_path)["features"])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file"),
        (b"not an array", "not an .npy or .npz file of numbers"),
        (b"", "not a whole .npy file"),
    ],
)
def test_broken_features_are_named(tmp_path: Path, content: bytes | None, complaint: str) -> None:
    if content is not None:
        (tmp_path / "train.npy").write_bytes(content)
    with pytest.raises(UserError, match=re.escape(f"train.npy: {complaint} (data.train.features)")):
        open_features(features_files(tmp_path)["features"])


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is no regular file"):
        content_digest(File(tmp_path / "pipe"))
