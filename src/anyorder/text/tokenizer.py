"""The tokenizer: from lines to token ids and back, with one vocabulary for both sides.

A line is split into words by the rules of its side, and the words become byte-pair pieces or whole-word ids.
`tokenizer.json` (in Hugging Face's format) holds the vocabulary. The rules for splitting, and how much of the
vocabulary targets use, are in the run's `config.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path
from typing import Literal

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models, pre_tokenizers, trainers

from anyorder.config.data import Side, Text
from anyorder.errors import UserError
from anyorder.system.files import read_text, reading
from anyorder.text.words import splitter

# The word head relies on this order: it scores the ids from EOD on, or from UNK on if another head decides
# when to finish. So ids that are never predicted come first, and UNK comes after EOD.
PAD, BOS, EOS, EOD, UNK = range(5)
SPECIALS = ("<pad>", "<s>", "</s>", "<eod>", "<unk>")
FILE_NAME = "tokenizer.json"
SideName = Literal["source", "target"]


# A source's words outside the vocabulary may be copied. They are numbered after the vocabulary, in the order
# of the source, and a model has this many embeddings to tell them apart.
OWN_KINDS = 16
FEW_LINES = 8  # fewer lines than this are encoded one by one, because starting threads takes longer
_END_OF_WORD = "</w>"
_GOES_ON = "·"


@dataclass(frozen=True)
class Tokens:
    """One line as token ids."""

    ids: list[int]
    words: list[str]  # after splitting and normalising
    pieces: list[int]  # number of ids of each word


class Tokenizer:
    """Turns lines of either side into token ids, and ids of a target into text.

    Tokens that targets use come directly after the special tokens. `target_size` counts both; the output
    layer scores no others.
    """

    def __init__(self, backend: tokenizers.Tokenizer, *, text: Text, target_size: int) -> None:
        self.text = text
        self.target_size = target_size
        self._backend = backend
        vocabulary = backend.get_vocab()
        self._pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        # The smaller pieces that targets use in place of each piece outside their part of the vocabulary.
        self.spelled_in_target = _spellings(backend, target_size=target_size)

    @property
    def size(self) -> int:
        """Size of the vocabulary, special tokens included."""
        return len(self._pieces)

    @staticmethod
    def train(text: Text, sources: Iterable[str], targets: Iterable[str]) -> Tokenizer:
        """Learn one vocabulary from both sides; there may be no sources (image features).

        The result doesn't depend on the order of the lines.
        """
        source_words = _word_counts(sources, side=text.source)
        target_words = _word_counts(targets, side=text.target)
        learn = _learn_pieces if text.unit == "bpe" else _learn_words
        return learn(text, source_words + target_words, target_words.keys())

    def encode(self, line: str, side: SideName) -> Tokens:
        """Encode one line, without boundary tokens."""
        return self.encode_all([line], side)[0]

    def encode_all(self, lines: Sequence[str], side: SideName) -> list[Tokens]:
        """Encode many lines, which is faster than one by one; without boundary tokens."""
        split = splitter(self.text.source if side == "source" else self.text.target).split
        return self.encode_words([split(line) for line in lines], side)

    def encode_words(self, words_of_lines: Sequence[Sequence[str]], side: SideName) -> list[Tokens]:
        """Encode lines that are already split into words.

        On the target side, a piece that targets don't use is replaced by smaller ones or by `<unk>`.
        """
        if side == "source" and self.text.bag:
            # Unlike a shuffle, sorting gives the same source for all orders of the same words.
            words_of_lines = [sorted(words) for words in words_of_lines]
        # A word of the text that looks like a special token is unknown. Pieces never spell a special token.
        disguises = dict.fromkeys(SPECIALS, SPECIALS[UNK]) if self.text.unit == "words" else {}
        disguised = [[disguises.get(word, word) for word in words] for words in words_of_lines]
        rules = {"is_pretokenized": True, "add_special_tokens": False}
        if len(disguised) < FEW_LINES:
            encodings = [self._backend.encode(words, **rules) for words in disguised]
        else:
            encodings = self._backend.encode_batch(disguised, **rules)
        spellings = self.spelled_in_target if side == "target" else {}
        return [
            _tokens(list(words), encoding, spellings)
            for words, encoding in zip(words_of_lines, encodings, strict=True)
        ]

    def words(self, ids: Sequence[int], *, own: Sequence[str] = ()) -> list[str]:
        """Turn ids of a target into words; boundary tokens are left out.

        own: the source's words outside the vocabulary, for ids beyond it.
        Any ids will do: a word whose last piece is missing ends with the line, and `<unk>` ends its word.
        """
        pieces = [self._spelled(token, own) for token in ids if token >= UNK]
        if self.text.unit == "words":
            return pieces
        words, begun = [], ""
        for piece in pieces:
            begun += _surface(piece)
            if _ends_word(piece) or piece == SPECIALS[UNK]:
                words.append(begun)
                begun = ""
        return [*words, begun] if begun else words

    def decode(self, ids: Sequence[int], *, own: Sequence[str] = ()) -> str:
        """Turn the ids of a whole target, from left to right, into text. own: as for `words`."""
        return splitter(self.text.target).join(self.words(ids, own=own))

    def normalised(self, form: str) -> str:
        """Apply the normalisation of targets to some characters; spaces are dropped."""
        return "".join(splitter(self.text.target).split(form))

    def piece(self, token: int, *, own: Sequence[str] = ()) -> str:
        """Show a token to a reader; "run·" is a piece that another piece follows. own: as for `words`."""
        piece = self._spelled(token, own)
        if self.text.unit == "words" or token <= UNK:
            return piece
        return _surface(piece) if _ends_word(piece) else piece + _GOES_ON

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Tokens that targets may hold, by how `piece` shows them."""
        return {self.piece(token): token for token in range(UNK, self.target_size)}

    def own_piece(self, word: str) -> str:
        """A whole word as an entry of `own`, for a word that the vocabulary can't spell."""
        return word if self.text.unit == "words" else word + _END_OF_WORD

    def _spelled(self, token: int, own: Sequence[str]) -> str:
        return self._pieces[token] if token < self.size else own[token - self.size]

    @cached_property
    def ends_word(self) -> NDArray[np.bool_]:
        """For each id, whether a word ends with this token."""
        whole_words = self.text.unit == "words"
        return np.array(
            [whole_words or token <= UNK or _ends_word(piece) for token, piece in enumerate(self._pieces)]
        )

    def parts(self, word: str) -> list[tuple[int, int, int]]:
        """List all tokens that can be part of a word: first character, end and id of each.

        This includes tokens that only sources use, because a model that copies can write them too.
        """
        if self.text.unit == "words":
            return [(0, len(word), self._ids[word])] if word in self._ids else []
        # The last piece of a word carries the end mark.
        pieces = {
            (start, end): word[start:end] + (_END_OF_WORD if end == len(word) else "")
            for start, end in combinations(range(len(word) + 1), 2)
        }
        return [(*span, self._ids[piece]) for span, piece in pieces.items() if piece in self._ids]

    def spelled(self, word: Sequence[int]) -> str:
        """Join the pieces of one word, including the end mark."""
        return "".join(self._pieces[token] for token in word)

    def letters(self, word: Sequence[int]) -> list[int]:
        """Split a word into single letters, as ids."""
        pieces = [self._pieces[token] for token in word]
        letters = [letter for piece in pieces for letter in _surface(piece)]
        if _ends_word(pieces[-1]):
            letters[-1] += _END_OF_WORD
        return [self._ids.get(letter, UNK) for letter in letters]

    @cached_property
    def merges(self) -> dict[tuple[int, int], int]:
        """Ids of two neighbouring pieces → id of the merged piece, in the order learned."""
        ids = self._ids
        return {(ids[left], ids[right]): ids[left + right] for left, right in _merges(self._backend)}

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: token for token, piece in enumerate(self._pieces) if token > UNK}

    def to_json(self) -> str:
        """The content of `tokenizer.json`, which is always the same for the same vocabulary."""
        return self._backend.to_str(pretty=True)

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`."""
        (folder / FILE_NAME).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, text: Text, target_size: int) -> Tokenizer:
        """Read `tokenizer.json`; text and target_size come from the run's config.

        Hugging Face's reader refuses unknown keys, so target_size can't be in the file.
        """
        path = folder / FILE_NAME
        try:
            content = read_text(path)
        except FileNotFoundError:
            raise UserError(f"{path}: no such file") from None
        try:
            backend = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the library raises no specific type
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: not a tokenizer: {reason}") from None
        if tuple(backend.id_to_token(token) for token in range(len(SPECIALS))) != SPECIALS:
            raise UserError(f"{path}: not a tokenizer of anyorder's: its ids must begin {' '.join(SPECIALS)}")
        size = backend.get_vocab_size()
        if not len(SPECIALS) <= target_size <= size:
            raise UserError(f"{path}: has {size} ids, which doesn't fit target_size = {target_size}")
        with reading(path):  # its merges may spell in circles
            return cls(backend, text=text, target_size=target_size)


def _tokens(words: list[str], encoding: tokenizers.Encoding, spellings: dict[int, tuple[int, ...]]) -> Tokens:
    ids: list[int] = []
    pieces = [0] * len(words)
    for token, word in zip(encoding.ids, encoding.word_ids, strict=True):
        assert word is not None, "only special tokens, which aren't added, belong to no word"
        spelled = spellings.get(token, (token,))
        ids += spelled
        pieces[word] += len(spelled)
    return Tokens(ids=ids, words=words, pieces=pieces)


# Learning a vocabulary


def _word_counts(lines: Iterable[str], *, side: Side) -> Counter[str]:
    return Counter(chain.from_iterable(map(splitter(side).split, lines)))


def _learn_words(text: Text, counts: Counter[str], target_words: Iterable[str]) -> Tokenizer:
    frequent = [word for word, count in counts.items() if count >= text.min_count and word not in SPECIALS]
    frequent.sort(key=lambda word: (-counts[word], word))
    kept = frequent[: text.vocabulary - len(SPECIALS)]
    in_targets = set(kept).intersection(target_words)
    ids = _numbered(kept, in_targets=in_targets)
    backend = tokenizers.Tokenizer(models.WordLevel(vocab=ids, unk_token=SPECIALS[UNK]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return Tokenizer(backend, text=text, target_size=len(SPECIALS) + len(in_targets))


def _learn_pieces(text: Text, counts: Counter[str], target_words: Iterable[str]) -> Tokenizer:
    learner = _trained_bpe(text, counts)
    learnt_ids = learner.get_vocab()
    pieces = sorted(learnt_ids.keys() - set(SPECIALS), key=learnt_ids.__getitem__)
    merges = [merge for merge in _merges(learner) if _keeps_apart(*merge)]
    with_any_numbers = _bpe(_numbered(pieces, in_targets=set()), merges)
    in_targets = _pieces_of(with_any_numbers, target_words)
    backend = _bpe(_numbered(pieces, in_targets=in_targets), merges)
    return Tokenizer(backend, text=text, target_size=len(SPECIALS) + len(in_targets))


def _trained_bpe(text: Text, counts: Counter[str]) -> tokenizers.Tokenizer:
    # The trainer numbers the letters that end a word in the order of a hash table and breaks ties between
    # merges by these numbers. As special tokens they are numbered here, which makes the result reproducible.
    word_ends = sorted({word[-1] + _END_OF_WORD for word in counts})
    trainer = trainers.BpeTrainer(
        vocab_size=text.vocabulary,
        show_progress=False,
        special_tokens=[*SPECIALS, *word_ends],
        end_of_word_suffix=_END_OF_WORD,
    )
    learner = tokenizers.Tokenizer(models.BPE(end_of_word_suffix=_END_OF_WORD))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator((f"{word} " * count for word, count in counts.items()), trainer)
    if learner.get_vocab_size() > text.vocabulary:
        raise UserError(
            f"text.vocabulary = {text.vocabulary}: too small for pieces of this training text; "
            f"allowed: from {learner.get_vocab_size()}, its single characters"
        )
    return learner


def _bpe(ids: dict[str, int], merges: list[tuple[str, str]]) -> tokenizers.Tokenizer:
    # Special tokens are ordinary entries. As added tokens they would be recognised in running text.
    model = models.BPE(
        vocab=ids, merges=merges, unk_token=SPECIALS[UNK], end_of_word_suffix=_END_OF_WORD, fuse_unk=True
    )
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.decoder = decoders.BPEDecoder(suffix=_END_OF_WORD)
    return backend


def _numbered(pieces: list[str], *, in_targets: set[str]) -> dict[str, int]:
    """Number the special tokens first, then the pieces that targets use, then the others."""
    targets_first = sorted(pieces, key=lambda piece: piece not in in_targets)
    return {piece: token for token, piece in enumerate([*SPECIALS, *targets_first])}


def _pieces_of(backend: tokenizers.Tokenizer, words: Iterable[str]) -> set[str]:
    """All pieces of these words, and their single letters, which can spell new words."""
    words = sorted(words)
    pieces: set[str] = set()
    for encoding in backend.encode_batch([[word] for word in words], is_pretokenized=True):
        pieces.update(encoding.tokens)
    for word in words:
        pieces.update(word[:-1], [word[-1] + _END_OF_WORD])
    return pieces.difference(SPECIALS)


# Pieces and their spelling


def _ends_word(piece: str) -> bool:
    return piece.endswith(_END_OF_WORD) and piece != _END_OF_WORD


def _surface(piece: str) -> str:
    return piece.removesuffix(_END_OF_WORD) if _ends_word(piece) else piece


def _keeps_apart(left: str, right: str) -> bool:
    """Whether a merge can't turn running text, e.g. "<s>" in HTML, into a special token or an end mark."""
    spells_special = not {left, right, left + right}.isdisjoint(SPECIALS)
    spells_word_end = _ends_word(left) or _ends_word(left + right) != _ends_word(right)
    return not spells_special and not spells_word_end


def _merges(backend: tokenizers.Tokenizer) -> list[tuple[str, str]]:
    model = json.loads(backend.to_str())["model"]
    return [(left, right) for left, right in model.get("merges", [])]


def _spellings(backend: tokenizers.Tokenizer, *, target_size: int) -> dict[int, tuple[int, ...]]:
    """Spell each token outside the targets' vocabulary by tokens inside it: undo merges until that works."""
    halves = {left + right: (left, right) for left, right in _merges(backend)}
    ids: dict[str, int] = backend.get_vocab()

    def spell(piece: str) -> tuple[int, ...]:
        if ids[piece] < target_size:
            return (ids[piece],)
        if piece not in halves:
            return (UNK,)
        left, right = halves[piece]
        return spell(left) + spell(right)

    return {token: spell(piece) for piece, token in ids.items() if token >= target_size}
