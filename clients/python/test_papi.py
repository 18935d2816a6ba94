"""vpp_papi as it is on PyPI, unmodified, against the router: what automation written for VPP does."""

from __future__ import annotations

import os
import queue
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from router import Router
from vpp_papi import VPPApiClient
from vpp_papi.vpp_stats import VPPStats

WAIT_S = 120.0
NO_LABELS = [{"is_uniform": 0, "label": 0, "ttl": 0, "exp": 0}] * 16
ALL = 0xFFFFFFFF


def connect(router: Router, name: str, **more: Any) -> Any:
    client = VPPApiClient(server_address=str(router.api), read_timeout=60, **(more or {"bootstrapapi": True}))
    client.connect(name)
    return client


def until(what: str, holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {WAIT_S} s: {what}")
        time.sleep(0.02)


def link_is_up(vpp: Any, index: int) -> bool:
    return bool(vpp.api.sw_interface_dump(sw_if_index=index)[0].flags & 2)


def beats(stats: Any) -> bool:
    return bool(stats["/sys/heartbeat"] > 1)


def has_run(stats: Any, node: int) -> bool:
    return bool(stats["/sys/node/vectors"][:, node].sum() > 0)


class OneRouter(unittest.TestCase):
    router: Router

    def setUp(self) -> None:
        self.router = self.enterContext(Router())


class Basics(OneRouter):
    def test_definitions_are_fetched_and_calls_work(self) -> None:
        vpp = connect(self.router, "first")
        assert vpp.api.show_version().program == "quiver"
        assert [i.interface_name for i in vpp.api.sw_interface_dump()] == ["local0"]
        assert vpp.api.show_vpe_system_time().vpe_system_time.timestamp() > 1700000000.0
        assert vpp.api.show_threads().thread_data[0].id == 0
        assert "local0" in vpp.api.cli_inband(cmd="show interface").reply
        wrong = vpp.api.cli_inband(cmd="show nonsense")
        assert wrong.retval == -1
        assert "nonsense" in wrong.reply
        vpp.disconnect()

    def test_definitions_from_files_do_as_well(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([os.environ["QUIVER_BIN"], "--api-json", folder], check=True)
            assert (Path(folder) / "interface.api.json").exists()
            vpp = connect(self.router, "files", apidir=folder)
            assert vpp.api.show_version().program == "quiver"
            vpp.disconnect()

    def test_refusals_have_the_codes_of_vpp(self) -> None:
        vpp = connect(self.router, "wrong")
        assert vpp.api.sw_interface_set_flags(sw_if_index=99, flags=1).retval == -2
        assert vpp.api.sw_interface_set_table(sw_if_index=0, is_ipv6=0, vrf_id=9).retval == -3
        assert vpp.api.create_vlan_subif(sw_if_index=0, vlan_id=4096).retval == -55
        vpp.disconnect()

    def test_addresses_routes_and_neighbors(self) -> None:
        vpp = connect(self.router, "routes")
        loop = vpp.api.create_loopback().sw_if_index
        vpp.api.sw_interface_set_flags(sw_if_index=loop, flags=1)
        vpp.api.sw_interface_add_del_address(sw_if_index=loop, is_add=1, prefix="10.1.0.1/24")
        vpp.api.sw_interface_add_del_address(sw_if_index=loop, is_add=1, prefix="2001:db8:1::1/64")
        four = vpp.api.ip_address_dump(sw_if_index=loop, is_ipv6=False)
        six = vpp.api.ip_address_dump(sw_if_index=loop, is_ipv6=True)
        assert [str(a.prefix) for a in four + six] == ["10.1.0.1/24", "2001:db8:1::1/64"]
        vpp.api.ip_table_add_del_v2(table={"table_id": 7, "is_ip6": False, "name": "red"}, is_add=1)
        assert (7, "red") in [(t.table.table_id, t.table.name) for t in vpp.api.ip_table_dump()]
        hop = {"address": {"ip4": "10.1.0.2"}}
        path = {"sw_if_index": loop, "weight": 1, "nh": hop, "n_labels": 0, "label_stack": NO_LABELS}
        route = {"table_id": 0, "prefix": "192.0.2.0/24", "n_paths": 1, "paths": [path]}
        index = vpp.api.ip_route_add_del(is_add=1, is_multipath=0, route=route).stats_index
        found = vpp.api.ip_route_lookup(table_id=0, exact=0, prefix="192.0.2.77/32").route
        assert (str(found.prefix), found.stats_index, found.n_paths) == ("192.0.2.0/24", index, 1)
        assert str(found.paths[0].nh.address.ip4) == "10.1.0.2"
        prefixes = [str(r.route.prefix) for r in vpp.api.ip_route_dump(table={"table_id": 0})]
        assert "192.0.2.0/24" in prefixes
        neighbor = {"sw_if_index": loop, "flags": 1, "mac_address": "02:00:00:00:00:09", "ip_address": "10.1.0.9"}
        vpp.api.ip_neighbor_add_del(is_add=1, neighbor=neighbor)
        (details,) = vpp.api.ip_neighbor_dump(af=0)
        assert str(details.neighbor.mac_address) == "02:00:00:00:00:09"
        assert 0 <= details.age < 60
        vpp.api.ip_neighbor_add_del(is_add=0, neighbor=neighbor)
        assert vpp.api.ip_neighbor_dump(af=0) == []
        vpp.api.delete_loopback(sw_if_index=loop)
        vpp.disconnect()

    def test_a_large_table_is_dumped_whole(self) -> None:
        vpp = connect(self.router, "many")
        vpp.api.cli_inband(cmd="ip route add 20.0.0.0/32 count 20000 via drop")
        routes = vpp.api.ip_route_v2_dump(src=0, table={"table_id": 0})
        assert sum(str(r.route.prefix).startswith("20.0.") for r in routes) == 20000
        vpp.disconnect()

    def test_layer_2(self) -> None:
        vpp = connect(self.router, "bridges")
        ports = [vpp.api.pg_create_interface_v3(interface_id=n, pg_flags=0, gso_size=0, mode=0).sw_if_index for n in (0, 1)]
        vpp.api.bridge_domain_add_del_v2(bd_id=5, flood=1, uu_flood=1, forward=1, learn=1, bd_tag="blue", is_add=1)
        for port in ports:
            vpp.api.sw_interface_set_l2_bridge(rx_sw_if_index=port, bd_id=5, enable=1)
        (domain,) = vpp.api.bridge_domain_dump(bd_id=5)
        assert (domain.bd_tag, [p.sw_if_index for p in domain.sw_if_details]) == ("blue", ports)
        vpp.api.l2fib_add_del(mac="02:00:00:00:00:01", bd_id=5, sw_if_index=ports[0], static_mac=1, is_add=1)
        (entry,) = vpp.api.l2_fib_table_dump(bd_id=5)
        assert (str(entry.mac), entry.static_mac) == ("02:00:00:00:00:01", True)
        sub = vpp.api.create_vlan_subif(sw_if_index=ports[0], vlan_id=100).sw_if_index
        vpp.api.sw_interface_set_l2_xconnect(rx_sw_if_index=sub, tx_sw_if_index=ports[1], enable=1)
        vpp.api.l2_interface_vlan_tag_rewrite(sw_if_index=sub, vtr_op=3)
        (details,) = vpp.api.sw_interface_dump(sw_if_index=sub)
        assert (details.sub_outer_vlan_id, details.vtr_op, details.sup_sw_if_index) == (100, 3, ports[0])
        vpp.disconnect()

    def test_a_path_mtu_and_a_route_to_a_host_on_a_link(self) -> None:
        vpp = connect(self.router, "links")
        port = vpp.api.pg_create_interface_v3(interface_id=0, pg_flags=0, gso_size=0, mode=0).sw_if_index
        vpp.api.sw_interface_set_flags(sw_if_index=port, flags=1)
        vpp.api.sw_interface_add_del_address(sw_if_index=port, is_add=1, prefix="10.1.0.1/24")
        vpp.api.ip_path_mtu_update(pmtu={"table_id": 0, "nh": "10.1.0.2", "path_mtu": 900})
        assert [d.pmtu.path_mtu for d in vpp.details_iter(vpp.api.ip_path_mtu_get)] == [900]
        path = {"sw_if_index": port, "weight": 1, "n_labels": 0, "label_stack": NO_LABELS}
        route = {"table_id": 0, "prefix": "192.0.2.1/32", "n_paths": 1, "paths": [path]}
        vpp.api.ip_route_add_del(is_add=1, is_multipath=0, route=route)
        found = vpp.api.ip_route_lookup(table_id=0, exact=1, prefix="192.0.2.1/32").route
        assert str(found.paths[0].nh.address.ip4) == "192.0.2.1"
        vpp.disconnect()

    def test_traces_are_taken_and_read(self) -> None:
        vpp = connect(self.router, "traces")
        loop = vpp.api.create_loopback().sw_if_index
        vpp.api.sw_interface_set_flags(sw_if_index=loop, flags=1)
        vpp.api.pg_create_interface_v3(interface_id=0, pg_flags=0, gso_size=0, mode=0)
        node = vpp.api.get_node_index(node_name="pg-input").node_index
        vpp.api.trace_capture_packets(node_index=node, max_packets=10, pre_capture_clear=True)
        frame = "IP4: 02:00:00:00:00:01 -> 02:00:00:00:00:02 UDP: 10.0.0.1 -> 10.0.0.2 UDP: 1 -> 2 incrementing 30"
        stream = f"packet-generator new {{ name s limit 3 size 100-100 interface pg0 node ethernet-input data {{ {frame} }} }}"
        assert vpp.api.cli_inband(cmd=stream).retval == 0
        vpp.api.cli_inband(cmd="packet-generator enable")
        until("the packets are out", lambda: "Yes" not in vpp.api.cli_inband(cmd="show packet-generator").reply)
        traces = vpp.api.trace_v2_dump(thread_id=ALL, position=0, max=2, clear_cache=True)
        assert [(t.position, t.more) for t in traces] == [(0, True), (1, True)]
        assert "pg-input" in traces[0].trace_data
        reply, details = vpp.api.trace_dump(thread_id=0, position=1, max_records=10, clear_cache=0)
        assert ([d.position for d in details], reply.done) == ([1, 2], 1)
        vpp.api.trace_clear_capture()
        vpp.api.trace_clear_cache()
        assert vpp.api.trace_v2_dump(thread_id=ALL, position=0, max=2, clear_cache=True) == []
        vpp.disconnect()


class Events(OneRouter):
    def test_the_end_of_a_ping_is_told(self) -> None:
        vpp = connect(self.router, "pings")
        told: queue.Queue[tuple[str, Any]] = queue.Queue()
        vpp.register_event_callback(lambda name, message: told.put((name, message)))
        loop = vpp.api.create_loopback().sw_if_index
        vpp.api.sw_interface_set_flags(sw_if_index=loop, flags=1)
        vpp.api.sw_interface_add_del_address(sw_if_index=loop, is_add=1, prefix="10.9.0.1/32")
        vpp.api.want_ping_finished_events(address="10.9.0.1", repeat=3, interval=0.5)
        name, message = told.get(timeout=WAIT_S)
        assert (name, message.request_count, message.reply_count) == ("ping_finished_event", 3, 3)
        vpp.disconnect()

    def test_those_who_asked_are_told_and_nobody_else(self) -> None:
        first, second = connect(self.router, "first"), connect(self.router, "second")
        told: queue.Queue[tuple[str, Any]] = queue.Queue()
        silent: queue.Queue[tuple[str, Any]] = queue.Queue()
        first.register_event_callback(lambda name, message: told.put((name, message)))
        second.register_event_callback(lambda name, message: silent.put((name, message)))
        first.api.want_interface_events(enable_disable=1, pid=os.getpid())
        first.api.want_ip_neighbor_events_v2(enable=1, pid=os.getpid(), ip="0.0.0.0", sw_if_index=ALL)
        loop = second.api.create_loopback().sw_if_index
        second.api.sw_interface_set_flags(sw_if_index=loop, flags=1)
        name, message = told.get(timeout=WAIT_S)
        assert (name, message.sw_if_index, message.flags & 1, message.deleted) == ("sw_interface_event", loop, 1, False)
        assert message.pid == os.getpid()
        second.api.sw_interface_add_del_address(sw_if_index=loop, is_add=1, prefix="10.9.0.1/24")
        neighbor = {"sw_if_index": loop, "flags": 1, "mac_address": "02:00:00:00:00:09", "ip_address": "10.9.0.9"}
        second.api.ip_neighbor_add_del(is_add=1, neighbor=neighbor)
        while name != "ip_neighbor_event_v2":
            name, message = told.get(timeout=WAIT_S)
        assert str(message.neighbor.ip_address) == "10.9.0.9"
        second.api.delete_loopback(sw_if_index=loop)
        while not (name == "sw_interface_event" and message.deleted):
            name, message = told.get(timeout=WAIT_S)
        assert silent.empty()
        assert "interfaces, neighbors" in second.api.cli_inband(cmd="show api clients").reply
        first.disconnect()
        until("the client is forgotten", lambda: "first" not in second.api.cli_inband(cmd="show api clients").reply)
        second.disconnect()


class Hostile(OneRouter):
    def raw(self) -> socket.socket:
        client = self.enterContext(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        client.settimeout(WAIT_S)
        client.connect(str(self.router.api))
        return client

    @staticmethod
    def frame(message: bytes) -> bytes:
        return struct.pack(">QII", 0, len(message), 0) + message

    def test_rubbish_ends_a_client_and_no_other(self) -> None:
        good = connect(self.router, "good")
        rubbish = self.raw()
        rubbish.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 10)
        assert rubbish.recv(1) == b"", "closed"
        unknown = self.raw()
        unknown.sendall(self.frame(struct.pack(">HI64s", 15, 1, b"odd")))
        (length,) = struct.unpack(">8xI4x", unknown.recv(16, socket.MSG_WAITALL))
        assert length > 1000
        assert len(unknown.recv(length, socket.MSG_WAITALL)) == length
        for message in (b"", b"\0", b"\xff\xff" + bytes(30), b"\0\x11", b"\0\x0f"):
            unknown.sendall(self.frame(message))
        half = self.frame(b"\0\x11" + bytes(50))[:30]
        unknown.sendall(half)
        unknown.close()
        silent = self.raw()
        silent.sendall(self.frame(struct.pack(">HI64s", 15, 1, b"vanishes")))
        silent.close()
        assert good.api.control_ping().retval == 0
        good.disconnect()

    def test_a_client_that_does_not_read_holds_up_nobody(self) -> None:
        good = connect(self.router, "good")
        lazy = self.raw()
        lazy.sendall(self.frame(struct.pack(">HI64s", 15, 1, b"lazy")))
        (number,) = (e.index for e in self.table(lazy) if e.name.startswith("get_api_json_51"))
        lazy.setblocking(False)
        request = self.frame(struct.pack(">HII", number, 1, 2))
        try:
            for _ in range(100000):
                lazy.send(request)
        except BlockingIOError:
            pass
        assert good.api.control_ping().retval == 0
        assert "lazy" in good.api.cli_inband(cmd="show api clients").reply
        lazy.close()
        until("the client is forgotten", lambda: "lazy" not in good.api.cli_inband(cmd="show api clients").reply)
        good.disconnect()

    def table(self, client: socket.socket) -> list[Any]:
        (length,) = struct.unpack(">8xI4x", client.recv(16, socket.MSG_WAITALL))
        reply = client.recv(length, socket.MSG_WAITALL)
        records = struct.iter_unpack(">H64s", reply[20:])
        return [SimpleNamespace(index=index, name=name.rstrip(b"\0").decode()) for index, name in records]


class TwoRouters(unittest.TestCase):
    """Two memif interfaces with addresses and routes, traffic between them, statistics of it."""

    def test_memif_addresses_routes_and_statistics(self) -> None:
        with Router() as a, Router() as b:
            one, two = connect(a, "a"), connect(b, "b")
            between = str(a.folder / "between.sock")
            indices = []
            for role, vpp in enumerate((one, two)):
                vpp.api.memif_socket_filename_add_del_v2(is_add=1, socket_id=1, socket_filename=between)
                made = vpp.api.memif_create(role=role, mode=0, rx_queues=1, tx_queues=1, id=3, socket_id=1, ring_size=1024)
                index = made.sw_if_index
                vpp.api.sw_interface_set_flags(sw_if_index=index, flags=1)
                vpp.api.sw_interface_add_del_address(sw_if_index=index, is_add=1, prefix=f"10.7.0.{role + 1}/24")
                indices.append(index)
            for vpp, index in zip((one, two), indices, strict=True):
                until("the link is up", partial(link_is_up, vpp, index))
            (details,) = one.api.memif_dump()
            assert (details.if_name, details.id, details.socket_id) == ("memif1/3", 3, 1)
            loop = two.api.create_loopback().sw_if_index
            two.api.sw_interface_set_flags(sw_if_index=loop, flags=1)
            two.api.sw_interface_add_del_address(sw_if_index=loop, is_add=1, prefix="10.8.0.1/32")
            hop = {"address": {"ip4": "10.7.0.2"}}
            path = {"sw_if_index": indices[0], "weight": 1, "nh": hop, "n_labels": 0, "label_stack": NO_LABELS}
            route = {"table_id": 0, "prefix": "10.8.0.0/24", "n_paths": 1, "paths": [path]}
            index = one.api.ip_route_add_del(is_add=1, is_multipath=0, route=route).stats_index
            # The last answer may take an interval. One goes first, for which the neighbour is asked: four at most may wait.
            for burst in (1, 4):
                reply = one.api.cli_inband(cmd=f"ping 10.8.0.1 repeat 1 interval 50 burst {burst}").reply
                assert f"{burst} sent, {burst} received" in reply, reply
            self.statistics(a, b, indices, index)
            one.api.memif_delete(sw_if_index=indices[0])
            assert one.api.memif_dump() == []
            one.disconnect()
            two.disconnect()

    def statistics(self, a: Router, b: Router, indices: list[int], route: int) -> None:
        for router, index in zip((a, b), indices, strict=True):
            stats = VPPStats(str(router.stats))
            stats.connect()
            names = stats["/if/names"]
            assert names[index] == "memif1/3"
            rx = stats["/if/rx"][:, index].sum_packets()
            assert rx >= 5
            until("the heart beats", partial(beats, stats))
            assert stats.ls(["/err/ip4-input/"])
            assert "ip4-input" in stats["/sys/node/names"]
            node = stats["/sys/node/names"].index("ip4-input")
            until("the node has had packets", partial(has_run, stats, node))
            vectors = stats["/sys/node/vectors"][:, node].sum()
            assert stats["/nodes/ip4-input/vectors"].sum() >= vectors
            assert stats["/interfaces/memif1_3/rx"].sum_packets() >= rx
            if router is a:
                assert stats["/net/route/to"][:, route].sum_packets() >= 5
            stats.disconnect()


if __name__ == "__main__":
    unittest.main()
