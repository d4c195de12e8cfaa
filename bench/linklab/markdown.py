"""The results for people: one table of all rows, and one of the targets."""

from __future__ import annotations

from typing import Any

from linklab import table, targets

_HEAD = ("row", "started by", "ms (median)", "faster than gloo", "than exact", "egress / formula")


def _line(fields: tuple[str, ...] | list[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def row(measured: dict[str, Any]) -> str:
    """Return one line: times of all, and how many times faster ours are."""
    contenders = measured["contenders"]
    times = ", ".join(f"{name} {_digits(c['median_ms'])}" for name, c in contenders.items())
    bytes_sent = [
        f"{name} {c['egress_ratio']:.4f}" for name, c in contenders.items() if "egress_ratio" in c
    ]
    others = [name for name in contenders if name not in table.OURS]
    faster = {
        base: ", ".join(
            f"{pair.split('/')[0]} {ratio:.2f}"
            for pair, ratio in measured["faster"].items()
            if pair.split("/")[1] == base
        )
        for base in [*others, "exact"]
    }
    against = "; ".join(
        faster[base] if base == "gloo" else f"{base}: {faster[base]}" for base in others
    )
    fields = [
        measured["name"],
        measured["launcher"],
        times,
        against or "-",
        faster["exact"] or "-",
        ", ".join(bytes_sent) or "-",
    ]
    return _line(fields)


def _digits(milliseconds: float) -> str:
    return f"{milliseconds:.1f}" if milliseconds >= 1 else f"{milliseconds:.4f}"


def rows(results: dict[str, Any]) -> str:
    """Return the table of all measurements, and what is missing in it."""
    lines = [_line(_HEAD), _line(["---"] * len(_HEAD))]
    lines += [row(measured) for measured in results["rows"]]
    missing = [f"- {what}: {why}." for what, why in results["missing"].items()]
    if missing:
        lines += ["", "Not measured:", "", *missing]
    wrong = [f"- {problem}." for problem in table.problems(results)]
    if wrong:
        lines += ["", "Wrong:", "", *wrong]
    return "\n".join(lines) + "\n"


def verdicts(results: dict[str, Any], codec: dict[str, Any] | None) -> str:
    """Return the table of targets."""
    lines = [_line(("target", "wanted", "measured", "")), _line(["---"] * 4)]
    for verdict in targets.check(results, codec):
        measured = "-" if verdict.measured is None else f"{verdict.measured:.2f}"
        lines.append(_line([verdict.what, verdict.wanted, measured, verdict.word]))
    return "\n".join(lines) + "\n"


def page(results: dict[str, Any], codec: dict[str, Any] | None) -> str:
    """Return both, for a reader who was not there."""
    machine = f"{results['cores']} cores, {results['machine']}, Linux {results['kernel']}"
    return f"{verdicts(results, codec)}\nAll rows, on {machine}:\n\n{rows(results)}"
