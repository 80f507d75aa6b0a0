"""Masked words: learn from text without labels by filling in words that were hidden; a start for other tasks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.batches import PadCollator, Subset, pad_batch
from fastformer.data.hold_out import hold_out
from fastformer.data.opening import Format
from fastformer.data.tables import given_texts
from fastformer.data.tokenizers import encode_batch, finding_masks
from fastformer.engine.fit import Trained, Workspace, check_mixers, explained_configuration
from fastformer.engine.inference import TextRunner
from fastformer.errors import UserError
from fastformer.modeling import FastformerConfig, FastformerForMaskedLM
from fastformer.modeling.pooling import MeanPooling
from fastformer.surroundings.progress import progress_bar
from fastformer.tasks.base import Card, Parts, Predictor, Task
from fastformer.tasks.masked_words.declaration import MaskedWordsSettings, Predicting
from fastformer.tasks.masked_words.objective import MaskedWordLearner
from fastformer.tasks.scores import perplexity
from fastformer.tasks.texts import Texts, encoder_config, say_other_columns, texts_of

BLANK = "[MASK]"
LONGEST = 4096  # tokens
SCORES = ("perplexity", "accuracy")
MOST_HELD_OUT = 1000  # scoring has the whole vocabulary in its sums


class MaskedWords(Task[MaskedWordsSettings, Parts[MaskedWordsSettings]]):
    """Filling in hidden words."""

    def check(self, settings: MaskedWordsSettings) -> MaskedWordsSettings:
        """Leave out what only a text classifier has: training on a part of the tokens, and texts of any length."""
        check_mixers(settings.mixer)
        training = replace(settings.training, learning_rate=settings.training.learning_rate or 3e-3)
        model, length = {**settings.model, "token_dropout": 0.0}, min(settings.max_length, LONGEST)
        return replace(settings, model=model, training=training, max_length=length)

    def read(
        self,
        source: str | Path | Iterable[str | Path],
        split: str,
        settings: MaskedWordsSettings,
        *,
        labelled: bool = True,
        format: Format | None = None,
    ) -> Texts:
        """The texts of one or more sources; labels are not read."""
        given = (source,) if isinstance(source, str | Path) else source
        sources = tuple(str(one) if isinstance(one, Path) else one for one in given)
        texts = Texts(sources, settings.reading(split, format), every_row=not labelled).check()
        say_other_columns(settings, texts, self.show)
        return texts

    def encode(self, data: Mapping[str, Texts], settings: MaskedWordsSettings, workspace: Workspace) -> Parts:
        """Token ids of all texts."""
        settings = settings.having_read(data, workspace.show)
        tokenizer = workspace.tokenizer(
            settings.tokenizer,
            workspace.watched(data["train"]),
            max_length=settings.max_length,
            prepare=_need_mask,
            vocab_size=settings.vocab_size,
            min_frequency=settings.min_frequency,
        )
        encoded = {
            name: workspace.encode(name, data[name], tokenizer, settings.max_length)
            for name in ("train", "validation")
            if name in data
        }
        for texts in encoded.values():  # labels that nobody reads: without any, the trainer would not score
            texts.labels = np.zeros(len(texts), dtype=np.int64)
        if "validation" in encoded:
            training, validating = (Subset(texts, np.arange(len(texts))) for texts in encoded.values())
        else:
            rows = hold_out(len(encoded["train"]), settings.training.seed, most=MOST_HELD_OUT)
            training, validating = (Subset(encoded["train"], some) for some in rows)
        tokens = int(training.lengths.sum())
        return Parts(
            settings=settings.for_size(len(training), tokens),
            tokenizer=tokenizer,
            train=training,
            validation=validating,
            collate=PadCollator(tokenizer.pad_token_id),
            counted=lambda batch: batch["attention_mask"].sum(),  # of which some are hidden
            compute_metrics=lambda result: word_scores(result.predictions),
            score="negative_perplexity",
            scores=SCORES,
            fingerprint={"train": training.arrays, "validation": validating.arrays},
            rows={"train": len(training), "validation": len(validating)},
            about={"tokens": tokens},
        )

    def build(self, parts: Parts, workspace: Workspace) -> MaskedWordLearner:
        """A model that hides words itself."""
        with explained_configuration():
            config = FastformerConfig(**encoder_config(parts.settings, parts.tokenizer))
        return MaskedWordLearner(config, parts.tokenizer.mask_token_id, parts.tokenizer.all_special_ids)

    def finish(
        self, model: MaskedWordLearner, parts: Parts, history: list[dict[str, float]], workspace: Workspace
    ) -> tuple[PreTrainedModel, dict[str, float]]:
        """The model without its training: any words may be hidden."""
        kept = FastformerForMaskedLM(model.config)
        kept.load_state_dict(model.state_dict())
        return kept, super().finish(model, parts, history, workspace)[1]

    def model_class(self, record: Mapping[str, Any]) -> type[PreTrainedModel]:
        """What a run's weights are weights of."""
        return FastformerForMaskedLM

    def predictor(self, trained: Trained[MaskedWordsSettings]) -> "Filler":
        """A model that fills in blanks."""
        return Filler(trained)

    def tokenizer_to_save(self, trained: Trained[MaskedWordsSettings]) -> PreTrainedTokenizerBase:
        """One that finds "[MASK]" in a text, for `pipeline("fill-mask", model=RUN)`."""
        return finding_masks(trained.tokenizer)

    def card(self, trained: Trained[MaskedWordsSettings], name: str) -> Card:
        """What the run's README says of this task."""
        return Card(
            what="A model that fills in hidden words, trained on text without labels: a start for models that are "
            "trained on few labels.",
            pipeline_tag="fill-mask",
            tags=[trained.record["mixer"]],
            notes=[f"Texts are cut at {trained.settings.max_length:,} tokens."],
            usage=f"""```bash
fastformer train classification --train labelled.csv --init {name} --output runs/classifier
echo "A wonderful [MASK], the best this year." | fastformer predict {name} -
```

```python
import fastformer
from transformers import pipeline

pipeline("fill-mask", model="{name}")("A wonderful [MASK], the best this year.")
```""",
        )


def _need_mask(tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.mask_token_id is None:
        raise UserError(f"the tokenizer at {tokenizer.name_or_path} has no mask token; use word, bpe or one that has")


def word_scores(hidden: np.ndarray) -> dict[str, float]:
    """Scores of hidden words, given the loss of each and whether it was found: (hidden words, 2)."""
    if not len(hidden):
        raise UserError("no word of the texts to score on can be hidden; give more text")
    loss, found = hidden.astype(np.float64).mean(axis=0)
    among = perplexity(loss)
    return {"perplexity": among, "accuracy": float(found), "negative_perplexity": -among}


class Filler(Predictor[MaskedWordsSettings]):
    """A loaded run that fills in blanks."""

    def __init__(self, trained: Trained[MaskedWordsSettings]):
        super().__init__(trained)
        self.runner = TextRunner(self.model, self.tokenizer, self.tokenizer.model_max_length)

    def predict(self, examples: Iterable[str], options: Predicting | None = None) -> Iterator[dict[str, Any]]:
        """`{"blanks": [{"good": 0.12, …}, …]}`: for each blank the likeliest words and their probabilities."""
        if (top := (options or Predicting()).top) < 1:
            raise UserError(f"--top {top}: no word would be left; give 1 or more")
        for text in texts_of(examples, self.settings):
            yield {"blanks": self.fill(text, top)}

    def example(self, text: str) -> str:
        """A text is all that an example is."""
        return text

    def texts(self, examples: Sequence[Any]) -> list[list[str]]:
        """The one text of each example."""
        return given_texts(examples, self.settings.reading("test"))

    def sample(self) -> str:
        """A text with a blank."""
        return f"A wonderful {BLANK}, the best this year."

    def vectors(self, examples: Iterable[str]) -> Iterator[np.ndarray]:
        """Mean token vectors (width,); zeros for a text without tokens."""

        def mean(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            states = self.model.fastformer(input_ids, attention_mask).last_hidden_state
            return MeanPooling(self.model.config)(states, attention_mask.bool())

        return self.runner(texts_of(examples, self.settings), mean)

    def evaluate(self, examples: Iterable[str], options: Any = None) -> dict[str, float]:
        """Hide 15% of the words and score how well they are filled in."""
        learner = MaskedWordLearner(self.model.config, self.tokenizer.mask_token_id, self.tokenizer.all_special_ids)
        learner.load_state_dict(self.model.state_dict())
        learner.to(self.model.device, self.model.dtype)
        runner = TextRunner(learner, self.tokenizer, self.tokenizer.model_max_length)
        hidden: list[np.ndarray] = []

        def score(**inputs: Tensor) -> Tensor:
            hidden.append(learner(**inputs).logits.float().cpu().numpy())
            return torch.zeros(len(inputs["input_ids"]))  # a batch's words are scored together, not by text

        rows = 0
        with progress_bar("Evaluating", show=self.show) as advance:
            for _ in runner(examples, score, one_by_one=True):
                rows += 1
                advance(1)
        self.runner.cut += runner.cut
        scores = word_scores(np.concatenate(hidden))
        return {"rows": rows, **{name: scores[name] for name in SCORES}}

    def notes(self) -> Iterator[str]:
        """How many texts were cut."""
        return self.runner.notes()

    @torch.inference_mode()
    def fill(self, text: str, top: int = Predicting.top) -> list[dict[str, float]]:
        """For each `[MASK]` in the text the likeliest words and their probabilities."""
        ids = self._encode(text)
        blanks = np.flatnonzero(ids == self.tokenizer.mask_token_id)
        if not len(blanks):
            return []
        inputs = pad_batch([ids], self.tokenizer.pad_token_id)
        inputs = {name: one.to(self.model.device) for name, one in inputs.items()}
        states = self.model.fastformer(**inputs).last_hidden_state[0, blanks]
        logits = self.model.decoder(self.model.norm(self.model.activation(self.model.dense(states))))
        logits[:, self.tokenizer.all_special_ids] = -torch.inf
        return [self._likeliest(chances, top) for chances in logits.float().softmax(dim=-1)]

    def _likeliest(self, chances: Tensor, top: int) -> dict[str, float]:
        """The likeliest words, given the probability of every token. A word has that of its likeliest token.

        With byte pairs a word is a token with the space before it and one without, and a space alone is no word.
        """
        found: dict[str, float] = {}
        ranked, tokens = chances.sort(descending=True)
        for token, chance in zip(tokens.tolist(), ranked.tolist(), strict=True):
            if word := self.tokenizer.decode([token]).strip():
                found.setdefault(word, round(chance, 6))
            if len(found) == top:
                break
        return found

    def _encode(self, text: str) -> np.ndarray:
        """Token ids with the mask token at each blank: the tokenizers read "[MASK]" in a text as text.

        A blank is a word and the space before it, as byte pairs have words. A foreign tokenizer's own special tokens
        stand around the whole, not around each part.
        """
        *before_blanks, last = text.split(BLANK)
        texts = [*(part.rstrip(" ") for part in before_blanks), last]
        parts, _ = encode_batch(self.tokenizer, texts, self.tokenizer.model_max_length)
        marks = self.tokenizer.num_special_tokens_to_add()
        is_mark = self.tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        first = min(marks, sum(takewhile(bool, is_mark)))
        blank, ids = np.array([self.tokenizer.mask_token_id], dtype=np.int32), []
        for part in parts:
            ids += [part[first : len(part) - marks + first], blank]
        inside = np.concatenate(ids[:-1])[: self.tokenizer.model_max_length - marks]
        return np.concatenate([parts[0][:first], inside, parts[0][len(parts[0]) - marks + first :]])
