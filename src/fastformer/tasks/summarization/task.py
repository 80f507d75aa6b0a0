"""Summarization: an encoder reads an article, a decoder writes its summary."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from fastformer.data.hold_out import hold_out
from fastformer.data.opening import Format
from fastformer.engine.fit import Trained, Workspace, check_mixers, explained_configuration
from fastformer.engine.settings import settled
from fastformer.engine.warm_start import kind_of, pair_rows_of, tokenizer_of, warm_start
from fastformer.modeling import FastformerConfig, FastformerForConditionalGeneration
from fastformer.surroundings.markdown import markdown_table
from fastformer.surroundings.progress import say
from fastformer.tasks.base import Card, Parts, Shown, Task
from fastformer.tasks.summarization.course import COURSE_FILE, Sample, plot_course
from fastformer.tasks.summarization.data import IGNORED, DocumentCollator, Pairs, add_end_token, encode_documents
from fastformer.tasks.summarization.declaration import SummarizationSettings
from fastformer.tasks.summarization.documents import Document, Documents
from fastformer.tasks.summarization.metrics import ENGLISH, ROUGE, LanguageDetector, language_code
from fastformer.tasks.summarization.objective import SummaryLearner, validation_scores
from fastformer.tasks.summarization.predictor import SummaryPredictor
from fastformer.tasks.summarization.writing import Writer
from fastformer.tasks.texts import encoder_config, say_other_columns

MOST_HELD_OUT = 1000
SCORES = ("perplexity", "accuracy", "rouge1", "seconds")  # of every epoch


@dataclass(kw_only=True)
class SummaryParts(Parts[SummarizationSettings]):
    """What a summarizer learns from."""

    sample: Sample | None  # to be summarized after every epoch
    kept: FastformerForConditionalGeneration | None = None  # the model without its training: it writes the sample


class Summarization(Task[SummarizationSettings, SummaryParts]):
    """Writing summaries."""

    def settings(self, preset: str | SummarizationSettings = "default", **given: Any) -> SummarizationSettings:
        """The settings of a preset; the tokenizer of a run to start from comes along, unless another is given."""
        given["tokenizer"] = given.get("tokenizer") or tokenizer_of(given.get("init"))
        return super().settings(preset, **given)

    def check(self, settings: SummarizationSettings) -> SummarizationSettings:
        """Refuse an unknown method or language, and a start that is not there."""
        check_mixers(settings.mixer)
        if settings.init is not None:
            kind_of(settings.init)
        return replace(settings.with_copying(), language=settings.language and language_code(settings.language))

    def read(
        self,
        source: Any,
        split: str,
        settings: SummarizationSettings,
        *,
        labelled: bool = True,
        format: Format | None = None,
    ) -> Documents:
        """The documents of a source, or, not `labelled`, its articles alone."""
        if isinstance(source, Path):
            source = str(source)
        elif labelled and not isinstance(source, str):
            source = list(source)  # it is read more than once
        documents = Documents(source, settings.reading(split, format), labelled)
        documents = documents.check() if labelled else documents
        say_other_columns(settings, documents, self.show)
        return documents

    def same(self, examples: Iterable[Document]) -> Iterable[str]:
        """Documents are the same if their articles are."""
        return (document.article for document in examples)

    def encode(
        self, data: Mapping[str, Documents], settings: SummarizationSettings, workspace: Workspace
    ) -> SummaryParts:
        """Token ids of all articles and summaries."""
        settings = settings.having_read(data, workspace.show)
        for _ in data.get("test", ()):  # a row that is wrong shows now and not after the training
            pass
        detector = LanguageDetector()
        tokenizer = workspace.tokenizer(
            settings.tokenizer,
            _texts(workspace.watched(data["train"]), detector),
            max_length=settings.max_length,
            prepare=_prepare,
            vocab_size=settings.vocab_size - 1,  # the end token is one more
            min_frequency=settings.min_frequency,
        )
        limits = (settings.max_length, settings.max_summary_length)
        encoded = {
            split: encode_documents(
                data[split], tokenizer, *limits, workspace.folder / f"{split}.tokens", workspace.show
            )
            for split in ("train", "validation")
            if split in data
        }
        if "validation" in encoded:
            training, validating = (Pairs(texts, np.arange(len(texts))) for texts in encoded.values())
        else:
            rows = hold_out(len(encoded["train"]), settings.training.seed, most=MOST_HELD_OUT)
            training, validating = (Pairs(encoded["train"], some) for some in rows)
        language = settings.language or _told_language(detector)
        settings = replace(settings.for_size(len(training)), language=language)
        if settings.init is not None:
            settings = replace(settings, model={**settings.model, **pair_rows_of(settings.init)})
        sample = None
        if settings.follow:
            sample = Sample.of(data.get("validation", data["train"]), validating, language)
        return SummaryParts(
            settings=settings,
            tokenizer=tokenizer,
            train=training,
            validation=validating,
            collate=DocumentCollator(tokenizer.pad_token_id),
            counted=lambda batch: (batch["labels"] != IGNORED).sum(),
            score="log_likelihood",
            scores=SCORES,
            fingerprint={"train": training.arrays, "validation": validating.arrays},
            rows={"train": len(training), "validation": len(validating)},
            about={
                "tokens": int(training.texts.lengths[training.indices].sum()),
                "sample": sample and sample.about(settings.training.seed),
            },
            sample=sample,
        )

    def build(self, parts: SummaryParts, workspace: Workspace) -> SummaryLearner:
        """A model that learns; beside it the one that writes, which may not change the random numbers."""
        settings, tokenizer = parts.settings, parts.tokenizer
        config = model_config(settings, tokenizer)
        with torch.random.fork_rng():
            parts.kept = kept = FastformerForConditionalGeneration(config)
        kept.generation_config = generation_config(settings, kept.config, tokenizer)
        learner = SummaryLearner(config)
        if settings.init is not None and not workspace.resume:  # a checkpoint has all weights
            counts = parts.train.texts.counts(config.vocab_size) if settings.adapt_init else None
            options: dict[str, Any] = {
                "counts": counts,
                "seed": settings.training.seed,
                "show_progress": workspace.show,
            }
            warm_start(learner, tokenizer, settings.init, **options)
        writer = Writer(kept, tokenizer, beams=1)
        parts.compute_metrics = lambda result: {
            **validation_scores(result.predictions),
            **({"rouge1": parts.sample.score(writer, learner)} if parts.sample else {}),
            "seconds": round(workspace.seconds, 1),
        }
        return learner

    def finish(
        self, model: SummaryLearner, parts: SummaryParts, history: list[dict[str, float]], workspace: Workspace
    ) -> tuple[PreTrainedModel, dict[str, float]]:
        """The model without its training."""
        kept = settled(parts.kept)
        kept.cpu().load_state_dict(model.state_dict())
        return kept, super().finish(model, parts, history, workspace)[1]

    def model_class(self, record: Mapping[str, Any]) -> type[PreTrainedModel]:
        """What a run's weights are weights of."""
        return FastformerForConditionalGeneration

    def predictor(self, trained: Trained[SummarizationSettings]) -> SummaryPredictor:
        """A model that writes."""
        return SummaryPredictor(trained)

    def pictures(self, trained: Trained) -> Mapping[str, Callable[[Path], None]]:
        """The course of the training, where it was followed over more than one epoch."""
        if not _has_course(trained.metrics):
            return {}
        return {COURSE_FILE: lambda path: plot_course(trained.metrics, path, path.resolve().parent.name)}

    def card(self, trained: Trained[SummarizationSettings], name: str) -> Card:
        """What the run's README says of this task."""
        settings, metrics = trained.settings, trained.metrics
        found = metrics["validation"]
        scores = [_rouge_table(metrics["test"])] if "test" in metrics else []
        scores += [f"![Course of the training]({COURSE_FILE})"] if _has_course(metrics) else []
        return Card(
            what="Writes the summary of an article.",
            pipeline_tag="summarization",
            tags=[settings.mixer],
            scores="\n\n".join(scores),
            notes=[
                f"On {metrics['rows']['validation']:,} validation documents the perplexity is "
                f"{found['perplexity']:.1f}, and {found['accuracy']:.1%} of the next words are right.",
                f"Articles are cut at {settings.max_length:,} tokens; summaries have at most "
                f"{settings.max_summary_length:,}.",
            ],
            usage=f"""```bash
fastformer summarize {name} article.txt
```

```python
import fastformer  # registers the model with transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer, model = AutoTokenizer.from_pretrained("{name}"), AutoModelForSeq2SeqLM.from_pretrained("{name}")
article = tokenizer("The text to be summarized.", return_tensors="pt", truncation=True)
print(tokenizer.decode(model.generate(**article)[0], skip_special_tokens=True))
```""",
        )

    def trained_tables(self, metrics: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """The scores of the best epoch, beside those of sentences of the articles; ROUGE of the test documents."""
        sample = metrics["sample"] or {"baselines": {}}
        baselines = {name: {"rouge1": found} for name, found in sample["baselines"].items()}
        yield Shown(title, {"validation": metrics["validation"], **baselines}, ("perplexity", "accuracy", "rouge1"))
        if "test" in metrics:
            yield from self.evaluated_tables(metrics["test"], "Test")

    def evaluated_tables(self, result: Mapping[str, Any], title: str) -> Iterator[Shown]:
        """ROUGE: a row per way to write summaries, half its 95% interval beside each mean."""
        short = {one: name.replace("ROUGE", "R") for one, name in ROUGE.items()}
        rows = {
            name: {short[one]: f"{found[one]:.2f} ± {_half(found['intervals'][one]):.2f}" for one in ROUGE}
            for name, found in result["summaries"].items()
        }
        stemming = "stemmed" if result["language"] == ENGLISH else "not stemmed"
        note = (
            f"± is half a 95% interval; words are {stemming}. Beam {result['beams']}, "
            f"{result['documents_per_second']:.1f} documents per second."
        )
        yield Shown(f"{title}, {result['rows']:,} documents", rows, tuple(short.values()), note)


def _texts(documents: Iterable[Iterable[str]], detector: LanguageDetector) -> Iterator[str]:
    """Articles and summaries; what language these are in shows on the way."""
    for article, summary in documents:
        detector.read(summary)
        yield from (article, summary)


def _told_language(detector: LanguageDetector) -> str:
    language = detector.language()
    taken = "English, so words are stemmed" if language == ENGLISH else "not English, so words are not stemmed"
    say(f"For ROUGE the summaries count as {taken}; --language says otherwise.")
    return language


def _prepare(tokenizer: PreTrainedTokenizerBase) -> None:
    add_end_token(tokenizer)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]  # `generate` refuses what else a foreign one makes


def model_config(settings: SummarizationSettings, tokenizer: PreTrainedTokenizerBase) -> FastformerConfig:
    """The configuration that the settings describe."""
    keys = encoder_config(settings, tokenizer, eos_token_id=tokenizer.eos_token_id)
    with explained_configuration():
        return FastformerConfig(**{"decoder_positions": settings.max_summary_length, **keys})


def generation_config(
    settings: SummarizationSettings, config: FastformerConfig, tokenizer: PreTrainedTokenizerBase
) -> GenerationConfig:
    """How summaries are written: what `generate` does unless it is told otherwise. It is saved with the model."""
    ids = (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id)
    never = sorted({token for token in ids if token is not None} - {tokenizer.eos_token_id})
    return GenerationConfig(
        num_beams=settings.beams,
        max_new_tokens=settings.max_summary_length,
        min_new_tokens=1,
        no_repeat_ngram_size=settings.no_repeat_ngrams,  # pieces to transformers, words to our `Writer`
        length_penalty=settings.length_penalty,
        suppress_tokens=never or None,
        decoder_start_token_id=config.decoder_start_token_id,
        pad_token_id=config.pad_token_id,
        eos_token_id=config.eos_token_id,
    )


def _has_course(metrics: Mapping[str, Any]) -> bool:
    """Whether there is anything to draw: one epoch is a point."""
    return bool(metrics["sample"]) and len(metrics["epochs"]) > 1


def _rouge_table(test: Mapping[str, Any]) -> str:
    """Markdown: ROUGE of the model and of sentences of the articles."""
    rows = [
        [title, *(f"{found[one]:.2f} ({_interval(found['intervals'][one])})" for one in ROUGE)]
        for title, found in test["summaries"].items()
    ]
    said = f"{test['rows']:,} test documents, beam {test['beams']}, ROUGE in percent with 95% intervals:"
    return f"{said}\n\n{markdown_table(['', *ROUGE.values()], rows)}".rstrip()


def _interval(ends: list[float]) -> str:
    return " – ".join(f"{end:.2f}" for end in ends)


def _half(ends: list[float]) -> float:
    low, high = ends
    return (high - low) / 2
