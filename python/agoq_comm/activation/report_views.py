"""A report for people: tables and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agoq_comm.activation.integrations.optional import require
from agoq_comm.activation.report import Report
from agoq_comm.activation.report_rows import Row

if TYPE_CHECKING:
    from rich.table import Table

_MOST_BARS = 14


def human(nbytes: float) -> str:
    """Write bytes with three digits and a unit of 1024."""
    sign, nbytes = "-" if nbytes < 0 else "", abs(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if nbytes < 1000:
            return f"{sign}{nbytes:.3g} {unit}" if unit != "B" else f"{sign}{nbytes:.0f} B"
        nbytes /= 1024
    return f"{sign}{nbytes:.3g} GiB"


def modules_table(report: Report, *, every_layer: bool = False) -> Table:
    """Lay out what each module saved and what is stored of it.

    Parameters
    ----------
    report : Report
        What to show.
    every_layer : bool
        A row for each layer, rather than one for all alike.
    """
    table = require("rich.table", "the report's table").Table(title="Saved for the backward pass")
    for name in ("module", "class"):
        table.add_column(name, overflow="fold")
    for name in ("saved", "twice", "stored", "scales", "error"):
        table.add_column(name, justify="right")
    table.add_column("how", overflow="fold")
    for row in report.rows if every_layer else report.grouped():
        table.add_row(
            row.module or "(outside)",
            row.tensor_class,
            human(row.original_bytes),
            human(row.deduplicated_bytes) if row.deduplicated_bytes else "",
            human(row.stored_bytes),
            human(row.scale_bytes) if row.scale_bytes else "",
            "" if row.relative_error is None else f"{row.relative_error:.2%}",
            how(row),
        )
    table.add_section()
    table.add_row(
        "all",
        "",
        human(report.saved_bytes),
        human(report.saved_bytes - report.unique_bytes),
        human(report.stored_bytes),
        human(sum(row.scale_bytes for row in report.rows)),
        "",
        f"{ratio(report.unique_bytes, report.stored_bytes)} less than {human(report.unique_bytes)}",
    )
    return table


def memory_table(report: Report) -> Table:
    """Lay out what the allocator measured, beside what the records predict."""
    title = f"Memory of a step, {report.device}, above what was in use before"
    table = require("rich.table", "the report's table").Table(title=title)
    table.add_column("")
    for name in ("as it is", "predicted", "measured", "times less"):
        table.add_column(name, justify="right")
    exact, compressed = report.exact, report.compressed
    for label, before, expected, after in (
        ("held for the backward pass", exact.held, report.stored_bytes, compressed.held),
        ("peak", exact.peak, report.predicted_peak, compressed.peak),
    ):
        table.add_row(label, human(before), human(expected), human(after), ratio(before, after))
    return table


def how(row: Row) -> str:
    """Say in what formats a row is stored, and why what is kept is kept."""
    parts = [f"{count} x {format}" for format, count in row.formats.items()]
    parts += [f"{count} kept: {reason}" for reason, count in row.kept.items()]
    return "; ".join(parts)


def ratio(before: float, after: float) -> str:
    """Write how many times less `after` is."""
    return f"{before / after:.2f} x" if after > 0 else ""


def draw(report: Report, path: Path) -> None:
    """Draw what was saved and what is stored of it, a bar for each module and class.

    Parameters
    ----------
    report : Report
        What to draw.
    path : Path
        A file whose suffix names the format, such as ``.png``.
    """
    matplotlib = require("matplotlib", "the report's picture")
    matplotlib.use("Agg")
    pyplot = require("matplotlib.pyplot", "the report's picture")
    rows = _largest(report.grouped())
    labels = [f"{row.module or '(outside)'}\n{row.tensor_class}" for row in rows]
    places = range(len(rows))
    figure, axis = pyplot.subplots(figsize=(9, 1.2 + 0.55 * len(rows)), layout="constrained")
    saved = [(row.original_bytes - row.deduplicated_bytes) / 2**20 for row in rows]
    axis.barh([y - 0.2 for y in places], saved, 0.36, color="0.75", label="saved, each once")
    left = [0.0] * len(rows)
    for label, color, sizes in (
        ("kept exactly", "tab:blue", [row.kept_bytes for row in rows]),
        ("codes", "tab:orange", [r.stored_bytes - r.kept_bytes - r.scale_bytes for r in rows]),
        ("scales", "tab:red", [row.scale_bytes for row in rows]),
    ):
        widths = [size / 2**20 for size in sizes]
        axis.barh([y + 0.2 for y in places], widths, 0.36, left, color=color, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axis.set_yticks(list(places), labels, fontsize="small")
    axis.invert_yaxis()
    axis.set_xlabel("MiB")
    axis.grid(axis="x", alpha=0.3)
    axis.legend(loc="lower right")
    axis.set_title(
        f"{human(report.unique_bytes)} saved, {human(report.stored_bytes)} stored; "
        f"measured peak {human(report.exact.peak)} before, {human(report.compressed.peak)} after",
        fontsize="medium",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _largest(rows: tuple[Row, ...]) -> list[Row]:
    """Return the rows that are worth a bar, in the order of the model."""

    def size(row: Row) -> int:
        return max(row.original_bytes - row.deduplicated_bytes, row.stored_bytes)

    chosen = {id(row) for row in sorted(rows, key=size, reverse=True)[:_MOST_BARS] if size(row)}
    return [row for row in rows if id(row) in chosen]
