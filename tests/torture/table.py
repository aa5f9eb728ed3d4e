"""The table of docs/failover.md from the results of a run: `python -m tests.torture.table [FILE]`."""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median

_SHOWN = 4  # names of a row's faults


def lines(results):
    """One row for each kind of fault: its runs, how many the oracle found wrong, and the longest gaps of the others."""
    rows = defaultdict(list)
    for result in results:
        rows[result["row"]].append(result)
    return [
        "| what fails | runs | wrong | longest time without an outcome | shown by (`make torture`) |",
        "|---|---|---|---|---|",
        *(
            f"| {row} | {len(found)} | {_wrong(found)} | {_cost(found)} | {_names(found)} |"
            for row, found in rows.items()
        ),
    ]


def _wrong(results):
    return sum(bool(result["problems"]) for result in results)


def _cost(results):
    # Where a process died before anything was answered there is no such time.
    gaps = [gap for result in results if not result["problems"] and (gap := result["longest_gap"]) > 0]
    if not gaps:
        return "none"
    return f"{median(gaps):.2f} s" + (f" ({min(gaps):.2f} to {max(gaps):.2f})" if len(gaps) > 1 else "")


def _names(results):
    names = list(dict.fromkeys(result["case"].rpartition("-")[0] for result in results))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(f"`{name}`" for name in names[:_SHOWN]) + more


def read(file):
    """What a run of the torture has written, of each case the last."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return list({result["case"]: result for result in found}.values())


if __name__ == "__main__":
    print("\n".join(lines(read(Path(sys.argv[1] if len(sys.argv) > 1 else "build/torture.jsonl")))))
