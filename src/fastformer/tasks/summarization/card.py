"""The model card that a run writes about itself."""

from typing import Any

from fastformer.tasks.summarization.course import COURSE_FILE
from fastformer.tasks.summarization.metrics import ROUGE


def model_card(record: dict[str, Any], metrics: dict[str, Any], name: str) -> str:
    """README.md of a run folder: what it does, how well, and how to use it."""
    settings, data = record["settings"], record["data"]
    lines = [
        "---",
        "library_name: fastformer",
        "pipeline_tag: summarization",
        f"tags: [fastformer, {record['mixer']}]",
        "---",
        "",
        f"# {name}",
        "",
        "Writes the summary of an article; trained with `fastformer train summarization`.",
        "",
    ]
    if test := metrics.get("test"):
        lines += [
            f"{test['rows']:,} test documents, beam {settings['beams']}, ROUGE in percent with 95% intervals:",
            "",
        ]
        lines += [f"| | {' | '.join(ROUGE.values())} |", "|---" * (1 + len(ROUGE)) + "|"]
        for title, scores in test["summaries"].items():
            cells = [
                f"{scores[one]:.2f} ({' – '.join(f'{end:.2f}' for end in scores['intervals'][one])})" for one in ROUGE
            ]
            lines.append(f"| {title} | {' | '.join(cells)} |")
        lines.append("")
    found = metrics["validation"]
    lines += [
        f"Trained on {metrics['rows']['train']:,} rows of `{data['train']}` in {metrics['train_seconds']:.0f} s. On "
        f"{metrics['rows']['validation']:,} validation documents the perplexity is {found['perplexity']:.1f}, and "
        f"{found['accuracy']:.1%} of the next words are right. Mixer `{record['mixer']}`, preset `{record['preset']}`, "
        f"seed {settings['training']['seed']}, {metrics['parameters']:,} parameters; articles are cut at "
        f"{settings['max_length']:,} tokens, summaries have at most {settings['max_summary_length']:,}.",
        "",
        *([f"![Course of the training]({COURSE_FILE})", ""] if metrics["sample"] else []),
        "```bash",
        f"fastformer summarize {name} article.txt",
        "```",
        "",
        "```python",
        "import fastformer  # registers the model with transformers",
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        "",
        f'tokenizer, model = AutoTokenizer.from_pretrained("{name}"), AutoModelForSeq2SeqLM.from_pretrained("{name}")',
        'article = tokenizer("The text to be summarized.", return_tensors="pt", truncation=True)',
        "print(tokenizer.decode(model.generate(**article)[0], skip_special_tokens=True))",
        "```",
        "",
    ]
    return "\n".join(lines)
