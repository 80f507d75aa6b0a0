"""Checkpoints of the authors' released PyTorch code, read into our models.

Their layer is the full-width form with values shared and layers unshared: `head_form="full"`, post-norm, learned
positions, additive pooling. Only names differ, and the biases of their two score layers have no place here: a
softmax does not see a constant added to all its scores.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fastformer.modeling.configuration import FastformerConfig
from fastformer.modeling.encoder import FastformerModel
from fastformer.modeling.heads import FastformerForSequenceClassification

_MODEL_PREFIX = "fastformer_model."

# Their module names -> ours, each with a weight and a bias.
_OUTER_MODULES = {
    "LayerNorm": "embeddings.norm",
    "poolers.0.att_fc1": "pooler.dense",
    "poolers.0.att_fc2": "pooler.score",
}
_LAYER_MODULES = {
    "attention.self.query": "mixer.query",
    "attention.self.key": "mixer.key",
    "attention.self.query_att": "mixer.query_score",
    "attention.self.key_att": "mixer.key_score",
    "attention.self.transform": "mixer.transform",
    "attention.output.dense": "mixer.output",
    "attention.output.LayerNorm": "mixer_post_norm",
    "intermediate.dense": "feed_forward.0",
    "output.dense": "feed_forward.2",
    "output.LayerNorm": "feed_forward_post_norm",
}


def load_official(
    state_dict: Mapping[str, Tensor], config: Mapping[str, Any]
) -> FastformerModel | FastformerForSequenceClassification:
    """Build our model from a state dict of the authors' code and its configuration (their JSON as a dict).

    An encoder's checkpoint (`encoders.*`, `poolers.0.*`, …) becomes a `FastformerModel`, whose token embedding is
    fresh because theirs lives outside the encoder. A whole model's checkpoint (`fastformer_model.*`,
    `word_embedding.weight`, `dense_linear.*`) becomes a `FastformerForSequenceClassification`. The model is returned
    in evaluation mode. A missing or unexpected key, or a tensor of the wrong shape, is a `ValueError` naming it.
    """
    whole = any(name.startswith(_MODEL_PREFIX) for name in state_dict)
    names = _official_names(config["num_hidden_layers"])
    settings = {
        "vocab_size": config.get("vocab_size", 1),
        "hidden_size": config["hidden_size"],
        "num_hidden_layers": config["num_hidden_layers"],
        "num_attention_heads": config["num_attention_heads"],
        "intermediate_size": config["intermediate_size"],
        "max_position_embeddings": config["max_position_embeddings"],
        "hidden_act": config.get("hidden_act", "gelu"),
        "hidden_dropout_prob": config.get("hidden_dropout_prob", 0.1),
        "layer_norm_eps": config.get("layer_norm_eps", 1e-12),
        "initializer_range": config.get("initializer_range", 0.02),
    }
    if whole:
        names = {_MODEL_PREFIX + theirs: ours and f"fastformer.{ours}" for theirs, ours in names.items()}
        names["word_embedding.weight"] = "fastformer.embeddings.word_embeddings.weight"
        names |= {f"dense_linear.{part}": f"classifier.{part}" for part in ("weight", "bias")}

    missing, unexpected = sorted(names.keys() - state_dict.keys()), sorted(state_dict.keys() - names.keys())
    if missing or unexpected:
        found = [f"missing {', '.join(missing)}"] * bool(missing)
        found += [f"unexpected {', '.join(unexpected)}"] * bool(unexpected)
        raise ValueError(f"not a checkpoint of the authors' code with this configuration: {'; '.join(found)}")

    if whole:
        settings["vocab_size"] = state_dict["word_embedding.weight"].shape[0]
        settings["num_labels"] = state_dict["dense_linear.weight"].shape[0]
        settings["classifier_dropout"] = 0.0
    model_class = FastformerForSequenceClassification if whole else FastformerModel
    model = model_class(FastformerConfig(**settings, head_form="full", share_layers=False, norm="post"))

    weights = model.state_dict()
    for theirs, ours in names.items():
        if ours is None:
            continue
        if weights[ours].shape != state_dict[theirs].shape:
            raise ValueError(
                f"{theirs} has shape {tuple(state_dict[theirs].shape)}, "
                f"the configuration asks for {tuple(weights[ours].shape)}"
            )
        weights[ours] = state_dict[theirs]
    model.load_state_dict(weights)
    return model.eval()


def _official_names(layers: int) -> dict[str, str | None]:
    """Every key of an encoder's checkpoint -> our parameter's name, `None` if it has no effect."""
    modules = dict(_OUTER_MODULES)
    for layer in range(layers):
        modules |= {f"encoders.{layer}.{theirs}": f"layers.{layer}.{ours}" for theirs, ours in _LAYER_MODULES.items()}
    names: dict[str, str | None] = {"position_embeddings.weight": "embeddings.position_embeddings.weight"}
    for theirs, ours in modules.items():
        names[f"{theirs}.weight"] = f"{ours}.weight"
        names[f"{theirs}.bias"] = None if ours.endswith("_score") else f"{ours}.bias"
    return names
