"""Makes the namespaces and links of a lab, and removes them whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import types
from collections.abc import Iterator

from linklab import formulas
from linklab.topology import INTERFACE, LOOPBACK, Lab, burst_bytes, owner_of


class LabError(RuntimeError):
    """The lab cannot be made here; the message says what to do."""


def check_possible() -> None:
    """Raise LabError unless this process may make namespaces and links."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        raise LabError("linklab needs ip and tc: apt-get install iproute2")
    if os.geteuid() != 0:
        raise LabError('linklab needs root: sudo -E env "PATH=$PATH" python -m linklab ...')


def _run(*command: str) -> str:
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        raise LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return done.stdout


def _write(namespace: str, path: str, value: str) -> None:
    _run("ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} > {path}")


def _shape(namespace: str, interface: str, rate: int | None) -> None:
    port = ["dev", interface, "root"]
    if rate is None:
        subprocess.run(["tc", "-n", namespace, "qdisc", "del", *port], capture_output=True)
        return
    bucket = ["rate", f"{rate}bit", "burst", str(burst_bytes(rate)), "latency", "50ms"]
    _run("tc", "-n", namespace, "qdisc", "replace", *port, "tbf", *bucket)


def set_rate(lab: Lab, rate: int | None) -> None:
    """Shape every port of a lab anew; connections stay."""
    if lab.hosts == 1:
        return
    for host in range(lab.hosts):
        set_host_rate(lab, host, rate)


def set_host_rate(lab: Lab, host: int, rate: int | None) -> None:
    """Shape one host's port, both ways where a switch joins the hosts."""
    _shape(lab.namespace(host), INTERFACE, rate)
    if lab.has_switch:
        _shape(lab.switch, f"p{host}", rate)


def create(lab: Lab) -> None:
    """Make all namespaces and links. After an error some may be left; `remove` takes them."""
    for namespace in lab.namespaces:
        _run("ip", "netns", "add", namespace)
        _run("ip", "-n", namespace, "link", "set", LOOPBACK, "up")
    if lab.hosts == 2:
        first, second = lab.namespaces
        link = ["ip", "link", "add", INTERFACE, "netns", first, "type", "veth"]
        _run(*link, "peer", "name", INTERFACE, "netns", second)
    elif lab.has_switch:
        _run("ip", "-n", lab.switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", lab.switch, "link", "set", "br0", "up")
        for host in range(lab.hosts):
            link = ["ip", "link", "add", INTERFACE, "netns", lab.namespace(host), "type", "veth"]
            _run(*link, "peer", "name", f"p{host}", "netns", lab.switch)
            _run("ip", "-n", lab.switch, "link", "set", f"p{host}", "master", "br0", "up")
    for host in range(lab.hosts):
        _configure_host(lab, host)
    set_rate(lab, lab.rate)


def _configure_host(lab: Lab, host: int) -> None:
    namespace = lab.namespace(host)
    # Neighbour discovery would send bytes of its own, where there is IPv6 at all.
    if os.path.exists("/proc/sys/net/ipv6") and lab.hosts > 1:
        _write(namespace, f"/proc/sys/net/ipv6/conf/{INTERFACE}/disable_ipv6", "1")
    # Namespaces know few of the machine's algorithms; this one is always there.
    _write(namespace, "/proc/sys/net/ipv4/tcp_congestion_control", "reno")
    _run("ip", "-n", namespace, "addr", "add", f"{lab.address(host)}/24", "dev", lab.interface)
    _run("ip", "-n", namespace, "link", "set", lab.interface, "up")


def existing() -> list[str]:
    """Names of all labs' namespaces, whoever made them."""
    listed = json.loads(_run("ip", "-j", "netns", "list") or "[]")
    return [entry["name"] for entry in listed if owner_of(entry["name"]) is not None]


def remove(namespaces: list[str]) -> None:
    """Remove namespaces, and with them their links and shapers; those already gone are no error.

    What still runs in one is ended: the grandchildren of an mpirun that was killed, for instance.
    """
    for namespace in namespaces:
        for process in processes_in(namespace):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def processes_in(namespace: str) -> list[int]:
    """Ids of what runs in a namespace; none where there is no such namespace."""
    command = ["ip", "netns", "pids", namespace]
    listed = subprocess.run(command, text=True, capture_output=True, check=False)
    return [int(process) for process in listed.stdout.split()]


def left_behind() -> list[str]:
    """Namespaces whose maker has ended."""
    return [name for name in existing() if not os.path.exists(f"/proc/{owner_of(name)}")]


def _interrupt(number: int, _frame: types.FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextlib.contextmanager
def laboratory(lab: Lab) -> Iterator[Lab]:
    """Make a lab and remove it at the end: after an error, Ctrl-C, SIGTERM and SIGHUP, too.

    SIGKILL alone leaves one; ``python -m linklab down`` removes it.
    """
    check_possible()
    before = {number: signal.signal(number, _interrupt) for number in _ENDING_SIGNALS}
    try:
        create(lab)
        yield lab
    finally:
        # A second Ctrl-C must not stop the removal.
        for number in _ENDING_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        remove(lab.namespaces)
        for number, handler in before.items():
            signal.signal(number, handler)


_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def sent(lab: Lab) -> list[tuple[int, int]]:
    """Bytes and frames that have left each host since the lab was made."""
    shown = ["ip", "-s", "-j", "-n"]
    return [
        parse_sent(_run(*shown, lab.namespace(host), "link", "show", "dev", lab.interface))
        for host in range(lab.hosts)
    ]


def parse_sent(text: str) -> tuple[int, int]:
    """Read bytes and frames from the JSON of ``ip -s -j link show``."""
    counters = json.loads(text)[0]["stats64"]["tx"]
    return counters["bytes"], counters["packets"]


def payload_since(lab: Lab, before: list[tuple[int, int]]) -> list[int]:
    """Return the payload that has left each host since `sent` returned `before`."""
    return [
        formulas.payload(new[0] - old[0], new[1] - old[1])
        for old, new in zip(before, sent(lab), strict=True)
    ]
