"""Engines to compare with, with random weights: Marian of Hugging Face Transformers, and CTranslate2."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anyorder import config
from anyorder.errors import UserError
from anyorder.text.tokenizer import BOS, EOS, PAD

CLIP_NORM = 1.0


def check_installed() -> None:
    """Refuse to go on if an engine is not installed.

    Nothing is imported here: the threads of an engine belong into the process that measures it.
    """
    for package in ("ctranslate2", "transformers"):
        if find_spec(package) is None:
            raise UserError(f"{package} is not installed: pip install anyorder[bench], or --no-peers")


def marian(settings: config.Model, *, vocabulary: int) -> Any:  # noqa: ANN401 (untyped)
    """Build the Marian model of Hugging Face Transformers with the sizes of a recipe."""
    from transformers import MarianConfig, MarianMTModel

    shape = MarianConfig(
        vocab_size=vocabulary,
        d_model=settings.width,
        encoder_layers=settings.encoder_layers,
        decoder_layers=settings.decoder_layers,
        encoder_attention_heads=settings.heads,
        decoder_attention_heads=settings.heads,
        encoder_ffn_dim=settings.hidden,
        decoder_ffn_dim=settings.hidden,
        activation_function="relu",
        dropout=settings.dropout,
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=PAD,
        forced_eos_token_id=None,
    )
    torch.manual_seed(0)
    return MarianMTModel(shape)


def marian_decoder(model: Any) -> Callable[[Tensor, int], object]:  # noqa: ANN401
    """Return a decoder that takes sources, (sentences, length), and a beam size.

    The targets are exactly as long as their sources.
    """
    model.eval()

    @torch.inference_mode()
    def decode(source: Tensor, beam: int) -> object:
        return model.generate(
            source,
            attention_mask=torch.ones_like(source),
            min_new_tokens=source.shape[1],
            max_new_tokens=source.shape[1],
            num_beams=beam,
            do_sample=False,
        )

    return decode


def ctranslate2_decoder(
    model: Any,  # noqa: ANN401
    folder: Path,
    *,
    precision: str,
) -> Callable[[Tensor, int], object]:
    """Return the same decoder for a Marian model that CTranslate2 runs.

    folder: created here for the files of CTranslate2.
    """
    import ctranslate2
    from ctranslate2.converters.transformers import MarianMTLoader

    spec = MarianMTLoader().get_model_spec(model)
    # The loader drops the last word, which is padding in the models of Marian.
    words = [f"word{number}" for number in range(model.config.vocab_size - 1)]
    words[PAD], words[BOS], words[EOS] = "<pad>", "<s>", "</s>"
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.decoder_start_token = words[PAD]
    spec.config.bos_token, spec.config.eos_token = words[BOS], words[EOS]
    spec.config.unk_token = words[-1]
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir()
    spec.save(str(folder))
    translator = ctranslate2.Translator(
        str(folder),
        device="cpu",
        compute_type={"fp32": "float32", "int8": "int8"}[precision],
        inter_threads=1,
        intra_threads=torch.get_num_threads(),
    )

    def decode(source: Tensor, beam: int) -> object:
        length = source.shape[1]
        return translator.translate_batch(
            [[words[token] for token in sentence] for sentence in source.tolist()],
            beam_size=beam,
            min_decoding_length=length,
            max_decoding_length=length,
        )

    return decode


def marian_trainer(model: Any, source: Tensor, target: Tensor) -> Callable[[], None]:  # noqa: ANN401
    """Return a function that makes one update. source, target: (sentences, length)."""
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    mask = torch.ones_like(source)

    def step() -> None:
        model.train()
        adam.zero_grad(set_to_none=True)
        model(input_ids=source, attention_mask=mask, labels=target).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        adam.step()

    return step
