# TRex measurement profile of O. Slavik, "Efficiency and utilization of vector packet processing in high-speed networks", bachelor's
# thesis, FIT CTU in Prague, 2025, code listing A.1, repaired: as printed it is not valid Python. Each repair is commented.
#
#   quiver-lab import-trex lab/trex/slavik2025.py --out p.yaml [--tunable=--frame_size=512] [--tunable=--cache_size=65536]
import argparse  # repair: for what were placeholders

from trex_stl_lib.api import *


class STLS1(object):
    def __init__(self):
        # repair: [FRAME_SIZE] and [CACHE_SIZE] were placeholders, and lists where numbers are needed; now tunables with defaults
        self.fsize = 64  # frame size of the main stream, with FCS
        self.latency_fsize = 64
        self.cache_size = 256  # most different sources: 256 for a /24, 65536 for a /16

    # repair: the text beside the listing says that the second interface had a mirrored version; here a direction is enough
    def addresses(self, direction):
        return ("48.0.0.1", "16.0.0.1") if direction else ("16.0.0.1", "48.0.0.1")

    def create_heavy_stream(self, direction):
        size = self.fsize - 4  # FCS
        src, dst = self.addresses(direction)
        base_pkt = Ether() / IP(src=src, dst=dst) / UDP(dport=12, sport=1025)
        pad = max(0, size - len(base_pkt)) * "x"

        vm = STLScVmRaw(
            [
                # repair: the name is given by its keyword, as in the other instructions
                STLVmFlowVar(name="ip_src", min_value="10.0.0.1", max_value="10.255.255.255", size=4, step=1, op="inc"),
                STLVmWrFlowVar(fv_name="ip_src", pkt_offset="IP.src"),
                STLVmFixIpv4(offset="IP"),  # IPv4 header checksum
                # repair: `13_offset', `14_offset' and `14_type' are no names: l (ell) was printed as 1
                # repair: the type 17 is IP alone in TRex's numbers; UDP's is CTRexVmInsFixHwCs.L4_TYPE_UDP
                STLVmFixChecksumHw(l3_offset="IP", l4_offset="UDP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_UDP),
            ],
            cache_size=self.cache_size,
        )

        pkt = STLPktBuilder(pkt=base_pkt / pad, vm=vm)

        return STLStream(name="heavy", packet=pkt, mode=STLTXCont())

    def create_latency_stream(self, direction):
        size = self.latency_fsize - 4
        src, dst = self.addresses(direction)
        pkt = Ether() / IP(src=src, dst=dst) / UDP(dport=1234, sport=1234)
        pad = max(0, size - len(pkt)) * "x"
        pkt = STLPktBuilder(pkt=pkt / pad)

        return STLStream(
            name="latency",
            packet=pkt,
            mode=STLTXCont(pps=5000),  # repair: the comma behind the mode was lost with its comment
            # repair: a number of its own for the second direction, as that text says
            flow_stats=STLFlowLatencyStats(pg_id=7 + direction),
        )

    # repair: TRex calls get_streams with direction, tunables and more; it took none
    def get_streams(self, direction=0, tunables=(), **kwargs):
        parser = argparse.ArgumentParser()
        parser.add_argument("--frame_size", type=int, default=self.fsize)
        parser.add_argument("--cache_size", type=int, default=self.cache_size)
        given = parser.parse_args(list(tunables))
        self.fsize, self.cache_size = given.frame_size, given.cache_size
        return [self.create_heavy_stream(direction), self.create_latency_stream(direction)]


# repair: indented as printed, it belonged to the class
def register():
    return STLS1()
