"""`fastformer export`: a trained run as one ONNX file, for machines without PyTorch or for smaller, faster serving.

An export is a run folder with model.onnx in place of model.safetensors, so `evaluate`, `predict` and `embed` take it as
they take the run. Batch and length are dynamic. Before anything is written under its name, random inputs go through
both models and must agree.
"""

import importlib.util
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fastformer.errors import UserError
from fastformer.export.int8 import to_int8
from fastformer.export.onnx_model import OnnxClassifier
from fastformer.export.session import LOGITS, MODEL_FILE, TEXT_VECTOR
from fastformer.modeling import FastformerForSequenceClassification
from fastformer.modeling.heads import with_doubt
from fastformer.runs.claiming import claim_output, holds_anything, unharmed
from fastformer.runs.folder import Run, open_run
from fastformer.runs.saving import writing_run
from fastformer.surroundings.files import write_json
from fastformer.surroundings.markdown import markdown_table
from fastformer.tasks.verbs import labelled, load
from fastformer.version import __version__

FORMATS = ("onnx",)
TOLERANCE = 1e-4  # of the outputs, or of their largest number if that is above 1
INT8_TOLERANCE = 1e-2  # against the same integers in PyTorch: a number between two may be rounded either way
_ONE_FILE_LIMIT = 2_000_000_000  # bytes that an ONNX file can hold: weights beyond it get a file of their own


def export(
    run: str | Path,
    output: str | Path | None = None,
    *,
    format: str = "onnx",
    int8: bool = False,
    evaluate_on: str | None = None,
    text_column: str | None = None,
    label_column: str | None = None,
    overwrite: bool = False,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Export a run to a folder that the other verbs read like a run; return what it is and how it compares.

    `output` is RUN-onnx or RUN-onnx-int8 unless given. With `evaluate_on`, a labelled file, the run and its exports are
    scored side by side: quality, speed, size, and the largest difference of their logits.
    """
    if format not in FORMATS:
        raise UserError(f"unknown format {format!r}; choose from {', '.join(FORMATS)}")
    opened = open_run(run)
    if opened.is_export:
        raise UserError(f"{run}: is an export itself; give the run that it was made from")
    folder = _claim(opened, output, int8, overwrite)
    predictor = load(opened, show_progress)
    model = predictor.exportable()
    _need_libraries()
    if evaluate_on is not None:
        examples = labelled(predictor, evaluate_on, text_column=text_column, label_column=label_column)
    record = {**opened.record, "fastformer": __version__, "export": {"format": format, "int8": int8}}
    with unharmed(folder), writing_run(folder, record) as aside:
        path = aside / MODEL_FILE
        written = to_int8(model) if int8 else model
        write_onnx(written, path)
        exported = OnnxClassifier(path, model.config)
        difference = verify(written, exported, INT8_TOLERANCE if int8 else TOLERANCE)
        result = {
            "format": format,
            "int8": int8,
            "megabytes": _megabytes(path),
            "megabytes_of_run": _megabytes(opened.folder / "model.safetensors"),
            "largest_difference": verify(model, exported, tolerance=None) if int8 else difference,
        }
        if evaluate_on is not None:
            models = {"run": model, "onnx": exported}
            sizes = {"run": result["megabytes_of_run"], "onnx": result["megabytes"]}
            if int8:
                float_path = aside / f"float-{MODEL_FILE}"
                write_onnx(model, float_path)
                models |= {"onnx": OnnxClassifier(float_path, model.config), "onnx int8": exported}
                sizes |= {"onnx": _megabytes(float_path), "onnx int8": result["megabytes"]}
            compared = predictor.compare(models, examples)
            result["evaluation"] = {name: {**row, "megabytes": sizes[name]} for name, row in compared.items()}
            for leftover in aside.glob(f"float-{MODEL_FILE}*"):
                leftover.unlink()
        model.config.save_pretrained(aside)
        predictor.tokenizer.save_pretrained(aside)
        write_json(aside / "metrics.json", {**opened.load_metrics(), "export": result})
        (aside / "README.md").write_text(_card(opened, folder.resolve().name, result, evaluate_on), encoding="utf-8")
    return {"output": str(folder), **result}


def _claim(run: Run, output: str | Path | None, int8: bool, overwrite: bool) -> Path:
    """The folder to write: beside the run unless given, never a trained run."""
    source = Path(os.path.realpath(run.folder))
    if output is None:
        place = source if run.folder.name in ("", "..") else run.folder
        output = place.with_name(f"{place.name}-onnx{'-int8' * int8}")
    folder = Path(output)
    if os.path.realpath(folder) == str(source):  # unlike `resolve` it takes a link to itself as it is
        raise UserError(f"{folder}: is the run itself; give --output another folder")
    claim_output(folder, resume=False, overwrite=overwrite)
    if holds_anything(folder) and not open_run(folder).is_export:
        raise UserError(f"{folder}: holds a trained run, which an export must not replace; give another --output")
    return folder


def _need_libraries() -> None:
    missing = [name for name in ("onnx", "onnxruntime", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"export needs {' and '.join(missing)}; run: pip install 'fastformer[onnx]'")


class _Graph(nn.Module):
    """What is exported: both outputs from one pass."""

    def __init__(self, model: FastformerForSequenceClassification):
        super().__init__()
        self.encoder, self.classifier, self.ngrams = model.fastformer, model.classifier, model.ngrams
        self.ngrams_only, self.doubt = model.config.ngram_only, model.config.doubt

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        vector = self.encoder(input_ids=input_ids, attention_mask=attention_mask).pooler_output
        logits = 0.0 if self.ngrams_only else self.classifier(vector)
        if self.ngrams is not None:
            logits = logits + self.ngrams(input_ids, attention_mask.bool())
        return with_doubt(logits, self.doubt), vector


def write_onnx(model: FastformerForSequenceClassification, path: Path) -> None:
    """Write a model's graph and weights, in one file if the format allows it."""
    ids = torch.zeros(3, max(2, min(40, _longest(model))), dtype=torch.int64)
    axes = {0: "batch", 1: "length"}
    with _quiet():
        try:
            program = torch.onnx.export(
                _Graph(model).eval(),
                (ids, torch.ones_like(ids)),
                dynamo=True,
                dynamic_shapes=(axes, axes),
                input_names=["input_ids", "attention_mask"],
                output_names=[LOGITS, TEXT_VECTOR],
                verbose=False,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = " ".join(str(error.__cause__ or error).split())[:200]
            raise UserError(f"mixer {model.config.mixer!r} cannot be exported to ONNX ({reason})") from error
        _strip(program.model)
        program.save(path, external_data=_weight_bytes(program.model) > _ONE_FILE_LIMIT)


def _strip(model: Any) -> None:
    """Leave out the exporter's notes: where each node stood in which source file of this machine."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(model)


def _weight_bytes(model: Any) -> int:
    return sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter speaks to its developers in warnings and log lines."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _longest(model: FastformerForSequenceClassification) -> int:
    """Tokens that the model takes at most."""
    config = model.config
    limited = config.position_embedding_type == "learned" or config.mixer == "linformer"
    return config.max_position_embeddings if limited else 2**31


@torch.inference_mode()
def verify(model: FastformerForSequenceClassification, exported: OnnxClassifier, tolerance: float | None) -> float:
    """Largest difference of logits and text vectors on random inputs; a mistake if it exceeds `tolerance`."""
    random = torch.Generator().manual_seed(0)
    worst = 0.0
    for lengths in ([1], [7], [64], [33, 20, 7, 0]):
        lengths = torch.tensor(lengths).clamp(max=_longest(model))
        ids = torch.randint(model.config.vocab_size, (len(lengths), int(lengths.max())), generator=random)
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        inputs = {"input_ids": ids, "attention_mask": mask}
        pairs = (
            (model(**inputs).logits, exported(**inputs).logits),
            (model.fastformer(**inputs).pooler_output, exported.fastformer(**inputs).pooler_output),
        )
        for ours, theirs in pairs:
            difference = float((ours - theirs).abs().max())
            worst = max(worst, difference)
            # Written so that a NaN fails too.
            if tolerance is not None and not difference <= tolerance * max(1.0, float(ours.abs().max())):
                raise UserError(
                    f"the export is {difference:.1e} away from the run (texts of {lengths.tolist()} tokens) and was "
                    "not written; please report it with your versions of torch and onnxruntime"
                )
    return worst


def _card(run: Run, name: str, result: dict[str, Any], evaluated_on: str | None) -> str:
    """README.md of an export: what it was made from, what goes in and out, how it compares."""
    numbers = "int8 (tables, and the products of wide models)" if result["int8"] else "float32"
    lines = [
        "---",
        "library_name: fastformer",
        "pipeline_tag: text-classification",
        f"tags: [{', '.join(dict.fromkeys(('fastformer', run.record['mixer'], 'onnx')))}]",
        "---",
        "",
        f"# {name}",
        "",
        f"The classifier `{run.folder.resolve().name}` as an ONNX graph, written by `fastformer export`. Weights: "
        f"{numbers}, {result['megabytes']:.1f} MB (the run: {result['megabytes_of_run']:.1f} MB).",
        "",
        "`input_ids` and `attention_mask` go in: int64, (batch, length), any batch and length up to the tokenizer's "
        "`model_max_length`. `logits` (batch, labels; named in config.json) and `pooler_output` (batch, width), the "
        "text vector, come out.",
        "",
    ]
    if evaluated_on is not None:
        lines += [f"On `{evaluated_on}`:", "", _comparison(result["evaluation"])]
    lines += [
        "```bash",
        f"fastformer predict {name} texts.txt",
        "```",
        "",
    ]
    return "\n".join(lines)


def _comparison(rows: dict[str, dict[str, float]]) -> str:
    """A row per model, a column per number."""
    columns = list(next(iter(rows.values())))
    header = ["", *(column.replace("_", " ") for column in columns)]
    return markdown_table(header, [[name, *(f"{row[column]:.4g}" for column in columns)] for name, row in rows.items()])


def _megabytes(path: Path) -> float:
    """Size of a model's file, and of its weights if they have one of their own."""
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*")) / 1e6
