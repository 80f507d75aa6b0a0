"""Put a trained encoder into packages/fastformer-base-en: its files, the weights in half precision, and its card.

    python scripts/ship_encoder.py runs/base CARD.md

The weights of an encoder are rounded to half precision when it is trained, so the package answers as the run does.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from fastformer.runs.folder import open_run
from fastformer.tasks.encoder.sentence_transformers import write_modules

MODEL = Path(__file__).parents[1] / "packages" / "fastformer-base-en" / "src" / "fastformer_base_en" / "model"
COPIED = ("run.json", "config.json", "tokenizer.json", "tokenizer_config.json", "metrics.json", "course.png")

SOURCES = ("train", "validation", "test", "pairs", "keep_out")


def _named(files: str | list[str] | None) -> list[str] | None:
    """Files as the guide calls them, `$DATA/folder/name`, not where they were."""
    if files is None:
        return None
    listed = files.split(",") if isinstance(files, str) else files
    return ["/".join(["$DATA", *Path(one).parts[-(3 if "suite" in one or "sts" in one else 2) :]]) for one in listed]


def ship(run_folder: str, card: str) -> None:
    """Replace what the package holds."""
    run = open_run(run_folder)
    shutil.rmtree(MODEL, ignore_errors=True)
    MODEL.mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(run.folder / name, MODEL / name)
    weights = {name: weight.to(torch.float16) for name, weight in load_file(run.folder / "model.safetensors").items()}
    save_file(weights, MODEL / "model.safetensors", metadata={"format": "pt"})
    (MODEL / "model.safetensors").chmod(0o644)
    record = json.loads((MODEL / "run.json").read_text(encoding="utf-8"))
    files = {name: value for name, value in record["data"].items() if name in SOURCES}
    record["data"] = {name: _named(value) for name, value in files.items()}  # any column may hold the text
    record["settings"] |= {"teacher": None, "vectors": None}
    (MODEL / "run.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    write_modules(MODEL / "modules.json", record["settings"]["width"])
    shutil.copyfile(card, MODEL / "README.md")
    print(f"{sum(path.stat().st_size for path in MODEL.rglob('*')) / 1e6:.1f} MB in {MODEL}")


if __name__ == "__main__":
    ship(*sys.argv[1:])
