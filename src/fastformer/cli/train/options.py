"""Options that several tasks' trainings share."""

from typing import Annotated

import typer

Mixer = Annotated[
    str, typer.Option(help="fastformer, transformer, longformer, bigbird, linformer, linear or poolingformer.")
]
Tokenizer = Annotated[
    str | None, typer.Option(help="word, pieces, bpe, nltk, or the path of a saved tokenizer [default: the preset's].")
]
WordVectors = Annotated[
    str | None,
    typer.Option(
        "--init",
        help="Start the vectors of words from a GloVe file (text, .gz or .zip), or from a folder with a transformers "
        "or sentence-transformers encoder.",
    ),
]
MaxLength = Annotated[int | None, typer.Option(min=1, help="Cut texts after this many tokens [default: the preset's].")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the training data [default: the preset's].")]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Rows per step [default: the preset's].")]
LearningRate = Annotated[float | None, typer.Option(min=1e-9, help="Adam's learning rate [default: the preset's].")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted training in --output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --output when done.")]
