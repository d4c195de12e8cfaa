"""Slow links on one machine, and the programs measured over them.

Usage, from the folder bench/, as root::

    python -m linklab run --hosts 2 --rate 1 -- python osu_allreduce.py -m 64M --vs gloo,agoq
    python -m linklab check --hosts 2 --rate 1 -m 16M     # bytes on the interfaces
    python -m linklab table --json lab.json --markdown lab.md
    python -m linklab up --hosts 4 --rate 10              # leaves it there, for experiments
    python -m linklab down                                # removes what was left behind
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from _common.command_line import parse_size
from linklab import formulas, measure, network, ranks, table
from linklab.topology import Lab, parse_rate, rate_name


def _shape(text: str) -> tuple[int, int]:
    hosts, cross, per_host = text.partition("x")
    if not hosts.isdigit() or (cross and not per_host.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write HOSTS or HOSTSxRANKS")
    return int(hosts), int(per_host or 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="linklab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    one_lab = argparse.ArgumentParser(add_help=False)
    one_lab.add_argument("--hosts", type=int, default=2, help="default 2")
    one_lab.add_argument("--per-host", type=int, default=1, help="ranks on each (default 1)")
    one_lab.add_argument("--rate", type=parse_rate, default=parse_rate("1"), help="Gbit/s, or none")

    run = commands.add_parser("run", parents=[one_lab], help="run a command once for each rank")
    run.add_argument("--timeout", type=float, default=900, help="seconds (default 900)")
    run.add_argument("command", nargs="+", help="after --; finds its rank as under torchrun")

    check = commands.add_parser("check", parents=[one_lab], help="compare bytes with the formulas")
    check.add_argument("-m", "--size", type=parse_size, default=parse_size("16M"))
    check.add_argument("--operation", choices=tuple(formulas.PASSES), default="allreduce")

    commands.add_parser("up", parents=[one_lab], help="make a lab and leave it")
    down = commands.add_parser("down", help="remove labs whose maker has ended")
    down.add_argument("--all", action="store_true", help="also those in use")

    whole = commands.add_parser("table", help="measure everything")
    whole.add_argument(
        "--shapes", type=_shape, nargs="+", default=[(2, 1), (4, 1), (2, 2)], metavar="HOSTSxRANKS"
    )
    whole.add_argument(
        "--rates",
        type=parse_rate,
        nargs="+",
        default=[parse_rate(r) for r in ("1", "2.5", "5", "10")],
    )
    whole.add_argument(
        "--operations", nargs="+", choices=tuple(formulas.PASSES), default=["allreduce"]
    )
    whole.add_argument("-m", "--sizes", type=parse_size, nargs="+", default=[parse_size("64M")])
    whole.add_argument("-i", "--iterations", type=int, default=10)
    whole.add_argument("--mpirun", action="append", default=[], help="of an MPI; may be repeated")
    whole.add_argument("--json", type=Path)
    whole.add_argument("--markdown", type=Path)
    return parser


def _run(arguments: argparse.Namespace, lab: Lab) -> int:
    before = network.sent(lab)
    ranks.run(lab, arguments.command, arguments.timeout)
    for host, payload in enumerate(measure.payload_since(lab, before)):
        print(f"host {host} sent {payload} bytes of payload")
    return 0


def _check(arguments: argparse.Namespace, lab: Lab) -> int:
    held = True
    for contender in ("exact", "agoq"):
        seen = measure.egress(lab, arguments.operation, contender, arguments.size)
        held = held and seen.holds
        by_host = ", ".join(f"{sent:.0f}" for sent in seen.bytes_by_host)
        print(
            f"{lab.name}, {rate_name(lab.rate)}, {arguments.operation} of {seen.size} bytes, "
            f"{contender}: {by_host} bytes left the hosts a call; formula {seen.expected:.0f}; "
            f"ratio {seen.ratio:.4f}: {'holds' if seen.holds else 'DOES NOT HOLD'}",
            flush=True,
        )
    return 0 if held else 1


def _up(lab: Lab) -> int:
    network.check_possible()
    try:
        network.create(lab)
    except BaseException:
        network.remove(lab.namespaces)
        raise
    for host in range(lab.hosts):
        print(f"{lab.address(host)}: ip netns exec {lab.namespace(host)} COMMAND")
    return 0


def _down(everything: bool) -> int:
    network.check_possible()
    gone = network.existing() if everything else network.left_behind()
    network.remove(gone)
    print(f"removed {len(gone)} namespace(s)")
    return 0


def _table(arguments: argparse.Namespace) -> int:
    network.check_possible()
    plan = table.Plan(
        arguments.shapes,
        arguments.rates,
        arguments.operations,
        arguments.sizes,
        arguments.iterations,
        arguments.mpirun,
    )
    print(table.markdown_head(), flush=True)
    results = table.new_results()
    try:
        table.measure_all(plan, results, lambda line: print(line, flush=True))
    finally:
        if arguments.json is not None:
            table.write_json(arguments.json, results)
        if arguments.markdown is not None:
            table.write(arguments.markdown, table.markdown(results))
    return 0 if table.all_held(results) else 1


def main() -> int:
    """Do what the command line says; the exit status is 1 where something failed or differs."""
    arguments = _parser().parse_args()
    try:
        if arguments.what == "down":
            return _down(arguments.all)
        if arguments.what == "table":
            return _table(arguments)
        lab = Lab(arguments.hosts, arguments.per_host, arguments.rate)
        if arguments.what == "up":
            return _up(lab)
        with network.laboratory(lab):
            return (_run if arguments.what == "run" else _check)(arguments, lab)
    except (network.LabError, ValueError) as error:
        print(f"linklab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(f"linklab: ended by {interrupt or 'SIGINT'}; the lab is removed", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
