"""FIM: fine-grained interest matching (Wang et al., ACL 2020). A candidate meets every clicked news word by word.

Titles. Word vectors d⁰ go through convolutions of growing dilation, so that level l has a vector for each segment of
a title, longer ones at higher levels:

    d^l = LayerNorm(ReLU(Conv(d^(l-1); dilation δ_l)))

Matching. All segments of a candidate c against all of the k-th clicked news, at every level:

    M^l_k[i, j] = d^l_k[i]·d^l_c[j] / √width

Scoring. The matrices of a history, stacked, are a cube with one channel per level. Two layers of 3-D
convolution, ELU and max pooling, then a linear map, make one number of it.

There is no vector of a user: what can be kept of a title is its segments. A cube is as large as the longest title and
history that the model takes, zero at padding, so that a score depends on nothing else.
"""

import math
from itertools import pairwise

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import PreTrainedConfig

from fastformer.modeling.configuration import within
from fastformer.modeling.dropout import Dropout
from fastformer.modeling.recommendation import NewsRecommender


@strict
class FimConfig(PreTrainedConfig):
    """Configuration of `FimForRecommendation`.

    vocab_size: number of rows of the word embedding.
    hidden_size: width of words and of segments at every level.
    dilations: of the convolutions over a title, one per level.
    cube_channels: of the two 3-D convolutions.
    max_title: words of a title that are read.
    max_history: clicked news that are read.
    hidden_dropout_prob: dropout of word vectors and of what the cube becomes.
    initializer_range: standard deviation of the normal distribution that weights start from.
    """

    model_type = "fastformer-fim"

    vocab_size: int = within(30000)
    hidden_size: int = within(256)
    dilations: list[int] | tuple[int, ...] = within((1, 2, 3))
    cube_channels: list[int] | tuple[int, ...] = within((32, 16))
    max_title: int = within(20)
    max_history: int = within(50)
    hidden_dropout_prob: float = within(0.2, least=0, most=1)
    layer_norm_eps: float = within(1e-12, least=0)
    initializer_range: float = within(0.02, least=0)
    pad_token_id: int | None = 0


class FimForRecommendation(NewsRecommender):
    """Fine-grained interest matching; see above."""

    config_class = FimConfig

    def __init__(self, config: FimConfig):
        super().__init__(config)
        width, levels = config.hidden_size, len(config.dilations)
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.segments = nn.ModuleList(
            [nn.Conv1d(width, width, 3, dilation=dilation, padding=dilation) for dilation in config.dilations]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width, eps=config.layer_norm_eps) for _ in range(levels)])
        channels = [1 + levels, *config.cube_channels]
        layers: list[nn.Module] = []
        for before, after in pairwise(channels):
            # ELU grows everywhere: after pooling it gives the same, for a 27th of the work.
            layers += [nn.Conv3d(before, after, 3, padding=1), nn.MaxPool3d(3, ceil_mode=True), nn.ELU()]
        self.cube = nn.Sequential(*layers, nn.Flatten())
        title, history = (_pooled(size, len(channels) - 1) for size in (config.max_title, config.max_history))
        self.score = nn.Linear(channels[-1] * history * title * title, 1)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The word embedding."""
        return self.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the word embedding."""
        self.word_embeddings = value

    def encode_news(self, input_ids: Tensor, attention_mask: Tensor, title_states: Tensor | None = None) -> Tensor:
        """Segments of titles (news, levels, max_title, width), zero at padding."""
        input_ids, attention_mask = (
            nn.functional.pad(part, (0, max(0, self.config.max_title - part.shape[1])))[:, : self.config.max_title]
            for part in (input_ids, attention_mask)
        )
        mask = attention_mask[..., None].bool()
        x = self.dropout(self.word_embeddings(input_ids)) * mask
        levels = [x]
        for convolution, norm in zip(self.segments, self.norms, strict=True):
            x = norm(convolution(x.transpose(1, 2)).relu().transpose(1, 2)) * mask
            levels.append(x)
        return torch.stack(levels, dim=1)

    def match(self, news: Tensor, history: Tensor, history_mask: Tensor, candidates: Tensor) -> Tensor:
        """Scores (batch, candidates); `news` are segments."""
        levels, words, width = news.shape[1:]
        flat = news.flatten(1)
        clicked = nn.functional.embedding(history, flat) * history_mask[..., None].to(flat.dtype)
        clicked = clicked.unflatten(-1, (levels, words, width)).transpose(1, 2).flatten(2, 3)  # b, levels, h·i, width
        offered = nn.functional.embedding(candidates, flat).unflatten(-1, (levels, words, width))
        offered = offered.transpose(1, 2).flatten(2, 3)  # b, levels, c·j, width
        cubes = clicked @ offered.transpose(2, 3) / math.sqrt(width)
        cubes = cubes.view(*history.shape[:1], levels, history.shape[1], words, candidates.shape[1], words)
        cubes = cubes.permute(0, 4, 1, 2, 3, 5).flatten(0, 1)  # b·c, levels, h, i, j
        cubes = nn.functional.pad(cubes, (0, 0, 0, 0, 0, self.config.max_history - history.shape[1]))
        return self.score(self.dropout(self.cube(cubes))).view(candidates.shape)


def _pooled(size: int, times: int) -> int:
    """What is left of a side after pooling by three."""
    for _ in range(times):
        size = -(-size // 3)
    return size
