"""Slow links on one machine, and the programs measured over them.

Usage, from the folder bench/, as root::

    python -m linklab peers                               # installs MPIs and oneCCL to compare with
    python -m linklab table                               # everything; recorded in bench/results
    python -m linklab table --quick --rate 1 --layout 2x1
    python -m linklab targets                             # what was recorded, beside the targets
    python -m linklab run --hosts 2 --rate 1 -- python osu_allreduce.py -m 64M --vs gloo,agoq
    python -m linklab up --hosts 4 --rate 10              # leaves it there, for experiments
    python -m linklab down                                # removes what was left behind
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from _common.command_line import parse_size
from linklab import cases, figure, markdown, network, peers, ranks, session, table, targets
from linklab.topology import Lab, parse_layout, parse_rate

_ROOT = Path(__file__).resolve().parents[2]
_RESULTS = _ROOT / "bench" / "results"
_PEERS = _ROOT / "build" / "peers"


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
    check.add_argument("--operation", choices=cases.OPERATIONS, default="allreduce")

    commands.add_parser("up", parents=[one_lab], help="make a lab and leave it")
    down = commands.add_parser("down", help="remove labs whose maker has ended")
    down.add_argument("--all", action="store_true", help="also those in use")

    install = commands.add_parser("peers", help="install MPIs and oneCCL (about 2 GB)")
    install.add_argument("--into", type=Path, default=_PEERS, help=f"default {_PEERS}")

    held = commands.add_parser("targets", help="compare recorded results with the targets")
    held.add_argument("--json", type=Path, default=_RESULTS / "linklab.json")

    _add_table(commands.add_parser("table", help="measure everything"))
    return parser


def _add_table(whole: argparse.ArgumentParser) -> None:
    only = whole.add_argument_group("rows (default: all)")
    only.add_argument("--layout", type=parse_layout, nargs="+", metavar="HOSTSxRANKS")
    only.add_argument("--rate", type=parse_rate, nargs="+", metavar="GBIT", help="or none")
    only.add_argument("--operation", nargs="+", choices=cases.OPERATIONS)
    only.add_argument("-m", "--size", type=parse_size, nargs="+", help="instead of the table's")
    only.add_argument("--quick", action="store_true", help="short messages and few rounds")
    whole.add_argument("--seconds", type=float, default=4, help="to time a row, about (default 4)")
    whole.add_argument("--budget", type=float, default=1200, help="for all (default 1200 s)")
    whole.add_argument("--peers", type=Path, default=_PEERS, help=f"default {_PEERS}")
    whole.add_argument("--mpirun", action="append", default=[], help="of an MPI; may be repeated")
    whole.add_argument("--no-peers", action="store_true", help="compare with gloo and exact alone")
    whole.add_argument("--keep", action="store_true", help="recorded rows not measured again")
    whole.add_argument("--check", action="store_true", help="also compare with the targets")
    whole.add_argument("--json", type=Path, default=_RESULTS / "linklab.json")
    whole.add_argument("--markdown", type=Path, default=_RESULTS / "linklab.md")
    whole.add_argument("--plot", type=Path, default=_ROOT / "docs" / "figures" / "linklab.png")


def _say(line: str) -> None:
    print(line, flush=True)


def _run(arguments: argparse.Namespace, lab: Lab) -> int:
    before = network.sent(lab)
    ranks.run(lab, arguments.command, arguments.timeout)
    for host, payload in enumerate(network.payload_since(lab, before)):
        _say(f"host {host} sent {payload} bytes of payload")
    return 0


def _check(arguments: argparse.Namespace, lab: Lab) -> int:
    case = cases.Case(
        lab.hosts,
        lab.ranks_per_host,
        lab.rate,
        arguments.operation,
        arguments.size,
        contenders=("exact", "agoq"),
    )
    held = True

    def on_result(measured: dict[str, Any]) -> None:
        nonlocal held
        for name, result in table.make_row(measured, "direct")["contenders"].items():
            held = held and result["egress_holds"]
            by_host = ", ".join(f"{sent:.0f}" for sent in result["egress_bytes"])
            _say(
                f"{case.name}, {name}: {by_host} bytes left the hosts a call; formula "
                f"{result['egress_expected']:.0f}; ratio {result['egress_ratio']:.4f}: "
                f"{'holds' if result['egress_holds'] else 'DOES NOT HOLD'}"
            )

    session.run(lab, [case], 0, 300, None, on_result)
    return 0 if held else 1


def _up(lab: Lab) -> int:
    network.check_possible()
    try:
        network.create(lab)
    except BaseException:
        network.remove(lab.namespaces)
        raise
    for host in range(lab.hosts):
        _say(f"{lab.address(host)}: ip netns exec {lab.namespace(host)} COMMAND")
    return 0


def _down(everything: bool) -> int:
    network.check_possible()
    gone = network.existing() if everything else network.left_behind()
    network.remove(gone)
    _say(f"removed {len(gone)} namespace(s)")
    return 0


def _table(arguments: argparse.Namespace) -> int:
    network.check_possible()
    wanted = cases.select(
        arguments.layout, arguments.rate, arguments.operation, arguments.size, arguments.quick
    )
    if not wanted:
        raise ValueError("no row of the table is of this layout, rate and operation")
    results = table.new_results()
    mpis: list[peers.Mpi] = []
    if not arguments.no_peers:
        mpis, results["missing"] = peers.find(arguments.mpirun, arguments.peers)
    for what, why in results["missing"].items():
        _say(f"not measured: {what}: {why}")
    seconds = 0 if arguments.quick else arguments.seconds
    try:
        table.measure_all(
            wanted, results, seconds, arguments.budget, mpis, lambda row: _say(markdown.row(row))
        )
    finally:
        if arguments.keep and arguments.json.exists():
            table.keep_rows(results, json.loads(arguments.json.read_text()))
        table.write_json(arguments.json, results)
        table.write(arguments.markdown, markdown.page(results, _codec()))
    figure.draw(results, arguments.plot)
    wrong = table.problems(results)
    for problem in wrong:
        _say(f"wrong: {problem}")
    if arguments.check:
        _targets(results)
    return 1 if wrong else 0


def _targets(results: dict[str, Any]) -> None:
    _say(markdown.verdicts(results, _codec()))


def _codec() -> dict[str, Any] | None:
    """What codec_bench has recorded, for the targets of the codec."""
    path = _RESULTS / "codec.json"
    return json.loads(path.read_text()) if path.exists() else None


def main() -> int:
    """Do what the command line says; the exit status is 1 where something failed or differs."""
    arguments = _parser().parse_args()
    try:
        if arguments.what == "down":
            return _down(arguments.all)
        if arguments.what == "peers":
            peers.install(arguments.into)
            return 0
        if arguments.what == "targets":
            results = json.loads(arguments.json.read_text())
            _targets(results)
            return 0 if all(v.met is not False for v in targets.check(results, _codec())) else 1
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
