"""What a model's files may say that nobody can use: refused when a run is opened, in a line that names the field."""

from pathlib import Path
from typing import Literal

import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from fastformer.engine.settings import problem_with
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Refuse what tokenizer_config.json may say and nobody can use."""
    fields = {
        "model_max_length": int,
        "model_input_names": list[str],
        "truncation_side": Literal["left", "right"],
        "padding_side": Literal["left", "right"],
        "split_special_tokens": bool,
        "pad_token_id": int,
    }
    for name, kind in fields.items():
        wrong = problem_with(getattr(tokenizer, name), kind)
        if wrong is None and name == "model_max_length" and tokenizer.model_max_length < 1:
            wrong = "is less than 1"
        if wrong is not None:
            raise UserError(f"{folder / 'tokenizer_config.json'}: {name} {wrong}; train the run again")
    tokenizer("a", return_special_tokens_mask=True)  # it does what it is for


def check_generation(settings: GenerationConfig, path: Path, config: FastformerConfig) -> None:
    """Refuse what generation_config.json may say and no beam search can use; transformers checks little of it."""
    settings.validate()
    fields = {
        **dict.fromkeys(("bos_token_id", "pad_token_id", "decoder_start_token_id"), int | None),
        "eos_token_id": int | list[int] | None,
        **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), list[int] | None),
        **dict.fromkeys(("num_beams", "max_length", "max_new_tokens", "min_length", "min_new_tokens"), int | None),
        "no_repeat_ngram_size": int | None,
        "length_penalty": float | None,
        "repetition_penalty": float | None,
        "early_stopping": bool | str | None,
        "do_sample": bool | None,
        "use_cache": bool | None,
        "forced_bos_token_id": int | None,
        "forced_eos_token_id": int | list[int] | None,
    }
    for name, kind in fields.items():
        value = getattr(settings, name, None)
        if wrong := problem_with(value, kind):
            raise UserError(f"{path}: {name} {wrong}; train the run again")
        numbers = value if isinstance(value, list) else [value] if isinstance(value, int) else []
        is_token = name.endswith(("_id", "_tokens")) and "new" not in name
        if is_token and any(not 0 <= one < config.vocab_size for one in numbers):
            raise UserError(f"{path}: {name} names a token that the model does not have; train the run again")
    if settings.decoder_start_token_id is None and settings.bos_token_id is None:
        raise UserError(f"{path}: decoder_start_token_id is missing; train the run again")
    if settings.max_new_tokens is None:  # transformers would stop at twenty
        raise UserError(f"{path}: max_new_tokens is missing; train the run again")
    if config.position_embedding_type == "learned":
        most = config.decoder_positions or config.max_position_embeddings
        if settings.max_new_tokens > most:
            raise UserError(f"{path}: max_new_tokens is more than the {most} that were learned; train the run again")
    if not 1 <= (settings.num_beams or 1) <= 1000:
        raise UserError(f"{path}: num_beams is {settings.num_beams}; train the run again")


def check_finite(model: PreTrainedModel) -> None:
    """Refuse weights that are not finite numbers."""
    for name, weight in model.state_dict().items():
        if weight.is_floating_point() and not torch.isfinite(weight).all():
            raise ValueError(f"{name} in model.safetensors has numbers that are not finite")
