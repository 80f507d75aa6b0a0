"""`python -m tests.fuzz`: run many cases, keep what came out in a file, and print a table of it."""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "1000", "NO_COLOR": "1"}


def main() -> int:
    """Run cases; return 1 if one of them ended as none should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="inputs and arguments, seven to three")
    parser.add_argument("--folders", type=int, help="damaged run folders [default: a fifth of the cases]")
    parser.add_argument("--tools", type=int, help="arguments of serve, bench and the like [default: a twentieth]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="cases, as KIND:NUMBER,…, with all that they said")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="runs to damage, and results so far")
    given = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    from .cases import make
    from .outcomes import Runner, import_all
    from .subjects import subjects

    found = subjects(given.keep.resolve())
    import_all()
    folders = given.cases // 5 if given.folders is None else given.folders
    arguments = given.cases * 3 // 10
    counts = {"inputs": given.cases - arguments, "arguments": arguments, "folders": folders}
    counts["tools"] = given.cases // 20 if given.tools is None else given.tools
    planned = [(kind, number) for kind, count in counts.items() for number in range(count)]
    planned.sort(key=lambda case: case[1] / counts[case[0]])  # all kinds from the start on
    if given.only:
        planned = [(kind, int(number)) for kind, number in (one.split(":") for one in given.only.split(","))]
    results = Path(os.devnull) if given.only else given.keep / f"results-{given.seed}.jsonl"
    known = _read(results)
    around = Path(tempfile.mkdtemp(prefix="fuzz-"))  # `..` of a case: a folder of our own, not the machine's
    place = around / "place"
    os.environ["FASTFORMER_CACHE"] = str(around / "cache")
    with Runner(found, place) as runner, open(results, "a") as file:
        for kind, number in planned:
            if (kind, number) in known:
                continue
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            case = make(kind, number, given.seed, found, place)
            outcome = runner.run(case)
            known[kind, number] = {"outcome": outcome.kind, "why": outcome.why, "seconds": outcome.seconds}
            row = {"kind": kind, "number": number, **known[kind, number], "arguments": case.arguments[:12]}
            print(json.dumps(row), file=file, flush=True)
            if given.only:
                print(f"---- {kind}:{number}", *map(ascii, case.arguments), outcome.said, sep="\n")
                print(f"{outcome.kind}: {outcome.why}\nWhat it read is in {place}.")
    if not given.only:
        shutil.rmtree(around, ignore_errors=True)
    return _report(known, planned)


def _report(known: dict[tuple[str, int], dict], planned: list[tuple[str, int]]) -> int:
    """Print how many cases ended how, and the causes of what must not be; return 1 if there are some."""
    from .outcomes import GOOD

    table = Counter((kind, known[kind, number]["outcome"]) for kind, number in planned)
    outcomes = sorted({outcome for _, outcome in table}, key=lambda one: (one not in GOOD, one))
    print("", *outcomes, sep="\t")
    for kind in dict.fromkeys(kind for kind, _ in planned):
        print(kind, *(table[kind, outcome] for outcome in outcomes), sep="\t")
    print(f"{sum(known[case]['seconds'] for case in planned):,.0f} seconds")
    bad = [(case, known[case]) for case in planned if known[case]["outcome"] not in GOOD]
    causes = Counter((one["outcome"], case[0], one["why"][:150]) for case, one in bad)
    for (outcome, kind, why), count in causes.most_common():
        first = next(case[1] for case, one in bad if case[0] == kind and one["why"][:150] == why)
        print(f"{count:5} {outcome}: {why!r} (such as {kind}:{first})")
    return int(bool(bad))


def _read(results: Path) -> dict[tuple[str, int], dict]:
    rows = (json.loads(line) for line in (results.read_text() if results.is_file() else "").splitlines())
    return {(row.pop("kind"), row.pop("number")): row for row in rows}


if __name__ == "__main__":
    sys.exit(main())
