"""quiver-metrics as Prometheus reads it: parsed by prometheus_client's strict parser of OpenMetrics."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from router import Router
from test_papi import connect, until

METRICS_BIN = os.environ.get("QUIVER_METRICS_BIN", str(Path(os.environ["QUIVER_BIN"]).with_name("quiver-metrics")))
PACKAGING = Path(__file__).parents[2] / "packaging" / "metrics"
MANY = 4000


class Exporter:
    """quiver-metrics beside a router."""

    def __init__(self, socket_path: Path) -> None:
        command = [METRICS_BIN, "--socket", str(socket_path), "--listen", "127.0.0.1:0"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        found = re.search(r"http://\S+/metrics", line)
        assert found, line
        self.url = found.group()

    def __enter__(self) -> Exporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.terminate()
        self._process.communicate()

    def page(self) -> str:
        with urllib.request.urlopen(self.url, timeout=120) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            return str(answer.read().decode())

    def status(self) -> int:
        try:
            with urllib.request.urlopen(self.url, timeout=120) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    def families(self) -> dict[str, Metric]:
        families = list(text_string_to_metric_families(self.page()))
        by_name = {family.name: family for family in families}
        assert len(by_name) == len(families)
        return by_name


def values(family: Metric, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in family.samples}


class Metrics(unittest.TestCase):
    def setUp(self) -> None:
        self.router = self.enterContext(Router())
        self.exporter = self.enterContext(Exporter(self.router.stats))

    def test_what_the_router_has_is_told_by_the_conventions(self) -> None:
        vpp = connect(self.router, "metrics")
        index = vpp.api.create_loopback().sw_if_index
        vpp.api.sw_interface_set_flags(sw_if_index=index, flags=1)
        vpp.api.sw_interface_add_del_address(sw_if_index=index, is_add=True, prefix="10.1.2.1/24")
        until("gauges are in the statistics", lambda: "quiver_buffers{" in self.exporter.page())
        found = self.exporter.families()
        assert set(values(found["quiver_interface_receive_packets"], "interface")) == {"local0", "loop0"}
        assert found["quiver_interface_receive_bytes"].unit == "bytes"
        assert found["quiver_memory_resident_bytes"].samples[0].value > 1 << 20
        assert values(found["quiver_thread_cpu_seconds"], "thread")["quiver_main"] > 0
        assert {"available", "used", "cached"} == set(values(found["quiver_buffers"], "state"))
        errors = {(s.labels["node"], s.labels["reason"]) for s in found["quiver_node_errors"].samples}
        assert ("ip4-input", "bad ip4 checksum") in errors
        vpp.disconnect()

    def test_dashboard_and_alerts_name_metrics_that_there_are(self) -> None:
        until("gauges are in the statistics", lambda: "quiver_buffers{" in self.exporter.page())
        families = set(self.exporter.families())
        # A limit only where NAT44 is on.
        told = families | {f"{name}_total" for name in families} | {"quiver_nat44_sessions_limit"}
        dashboard = json.loads((PACKAGING / "dashboard.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        expressions += re.findall(r"expr: (.*)", (PACKAGING / "alerts.yaml").read_text())
        named = set(re.findall(r"\bquiver_[a-z0-9_]+", " ".join(expressions)))
        assert len(named) > 15
        assert named <= told, named - told

    def test_the_alert_rules_are_rules(self) -> None:
        promtool = shutil.which("promtool")
        if promtool is None and os.environ.get("QUIVER_CI") != "1":
            self.skipTest("promtool is missing (scripts/install-packages ci)")
        subprocess.run([promtool or "promtool", "check", "rules", str(PACKAGING / "alerts.yaml")], check=True)

    def test_thousands_of_interfaces_are_told_each_once(self) -> None:
        vpp = connect(self.router, "many")
        names = {f"loop{vpp.api.create_loopback().sw_if_index - 1}" for _ in range(MANY)}
        vpp.disconnect()
        until("all are there", lambda: f'interface="loop{MANY - 1}"' in self.exporter.page())
        begin = time.monotonic()
        page = self.exporter.page()
        took = time.monotonic() - begin
        found = {family.name: family for family in text_string_to_metric_families(page)}
        for family in ("receive_packets", "transmit_bytes", "drop_packets", "transmit_error_packets"):
            assert set(values(found[f"quiver_interface_{family}"], "interface")) == names | {"local0"}, family
        print(f"{MANY} interfaces: {page.count(chr(10))} lines, {len(page) >> 10} kB, scraped in {took * 1e3:.0f} ms")

    def test_those_who_are_slow_or_send_nonsense_keep_nobody_out(self) -> None:
        host, port = self.exporter.url.split("/")[2].split(":")
        idle = []
        for number in range(200):
            client = socket.create_connection((host, int(port)))
            client.sendall([b"", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n", b"\0" * 4000][number % 4])
            idle.append(client)
        assert self.exporter.families()
        for client in idle:
            client.close()

    def test_a_router_that_is_gone_is_an_error_and_a_new_one_is_found(self) -> None:
        folder = self.router.folder
        missing = self.enterContext(Exporter(folder / "none.sock"))
        assert missing.status() == 503
        with Router() as other:
            follower = self.enterContext(Exporter(other.stats))
            assert follower.status() == 200
        assert follower.status() == 503


class Listening(unittest.TestCase):
    def test_only_this_machine_is_listened_to_unless_said(self) -> None:
        command = [METRICS_BIN, "--socket", "/nonexistent/stats.sock", "--listen", "0.0.0.0:0"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert refused.returncode == 1
        assert "--allow-remote" in refused.stderr
