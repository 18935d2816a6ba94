//! Who forwards between the two links, and how it is set up.

use std::io;
use std::time::Duration;

use quiver_testbed::{Router, TwoHosts};

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Nobody,
    Kernel,
    KernelSteered,
    AfPacket,
    AfPacketFastPath,
    AfPacketFastPathSteered,
    AfXdpNative,
    AfXdpGeneric,
    FastPath,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Nobody,
        Self::Kernel,
        Self::KernelSteered,
        Self::AfPacket,
        Self::AfPacketFastPath,
        Self::AfPacketFastPathSteered,
        Self::AfXdpNative,
        Self::AfXdpGeneric,
        Self::FastPath,
    ];

    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nobody => "sender alone",
            Self::Kernel => "kernel",
            Self::KernelSteered => "kernel, RPS to core 1",
            Self::AfPacket => "quiver, AF_PACKET",
            Self::AfPacketFastPath => "quiver, ingress hook",
            Self::AfPacketFastPathSteered => "quiver, hook, RPS to 1",
            Self::AfXdpNative => "quiver, AF_XDP native",
            Self::AfXdpGeneric => "quiver, AF_XDP generic",
            Self::FastPath => "quiver, driver hook",
        }
    }

    /// Whether the kernel works on core 1, in interrupts that count for nobody.
    pub fn is_steered(self) -> bool {
        matches!(self, Self::KernelSteered | Self::AfPacketFastPathSteered)
    }

    /// Whether frames without a socket buffer reach it as they are.
    pub fn takes_live_frames(self) -> bool {
        matches!(self, Self::Kernel | Self::AfPacketFastPath | Self::AfXdpNative | Self::FastPath)
    }

    /// The command that opens device `r<n>` as interface `x<n>`.
    fn create(self, n: u32) -> String {
        let mac = format!("hw-addr 02:00:00:00:0{}:01", n + 1);
        match self {
            Self::AfPacket | Self::AfPacketFastPath | Self::AfPacketFastPathSteered => {
                format!("create host-interface name r{n} {mac}\nset interface name host-r{n} x{n}")
            }
            Self::AfXdpGeneric => format!("create interface af_xdp host-if r{n} name x{n} generic {mac}"),
            _ => format!("create interface af_xdp host-if r{n} name x{n} native {mac}"),
        }
    }
}

/// Configures the middle for a way of forwarding, with or without source NAT to 192.0.2.0/24.
///
/// # Errors
/// What could not be set up.
pub fn prepare(scene: &TwoHosts, way: Way, nat: bool) -> io::Result<Option<Router>> {
    let middle = &scene.middle;
    // Host b counts a frame and does no more with it: what is measured is the way there.
    let drop = "add table netdev sink; add chain netdev sink load { type filter hook ingress device eth0 priority 0; policy accept; }; \
                add rule netdev sink load udp dport { 9, 12 } drop";
    scene.b.run_args(&["nft", drop], Duration::from_secs(5))?.ok_or_error("nft")?;
    match way {
        Way::Nobody => Ok(None),
        Way::Kernel | Way::KernelSteered => {
            middle.address("r0", "10.0.1.1/24")?;
            middle.address("r1", "10.0.2.1/24")?;
            middle.sysctl("net.ipv4.ip_forward", "1")?;
            if nat {
                middle.route("48.0.0.0/8", "10.0.2.2")?;
                middle.route("10.64.0.0/16", "10.0.1.2")?;
                let rule = "add table ip nat; add chain ip nat post { type nat hook postrouting priority 100; }; \
                            add rule ip nat post oifname r1 snat to 192.0.2.0-192.0.2.255";
                middle.run_args(&["nft", rule], Duration::from_secs(5))?.ok_or_error("nft")?;
            } else {
                middle.route("10.0.3.0/24", "10.0.2.2")?;
            }
            steer(scene, way)?;
            Ok(None)
        }
        _ => {
            steer(scene, way)?;
            let router = Router::start(middle, "cpu { main-core 0 corelist-workers 1 }")?;
            if way == Way::FastPath {
                // The end of a veth takes frames of programs while its NAPI runs.
                scene.b.run("ethtool -K eth0 gro on", Duration::from_secs(5))?.ok_or_error("GRO")?;
            }
            if matches!(way, Way::AfPacketFastPath | Way::AfPacketFastPathSteered) {
                router.script("set host-interface fast-path on").map_err(io::Error::other)?;
            }
            for n in 0..2 {
                let net = n + 1;
                let up = format!("set interface state x{n} up\nset interface ip address x{n} 10.0.{net}.1/24");
                router.script(&format!("{}\n{up}", way.create(n))).map_err(io::Error::other)?;
            }
            let commands = if nat {
                "ip route add 48.0.0.0/8 via 10.0.2.2 x1\nnat44 plugin enable\nnat44 add address 192.0.2.0 - 192.0.2.255\n\
                 set interface nat44 in x0 out x1"
            } else {
                "ip route add 10.0.3.0/24 via 10.0.2.2 x1"
            };
            router.script(commands).map_err(io::Error::other)?;
            Ok(Some(router))
        }
    }
}

/// Receive packet steering to core 1, where the way has it.
fn steer(scene: &TwoHosts, way: Way) -> io::Result<()> {
    if !way.is_steered() {
        return Ok(());
    }
    let steer = "echo 2 > /sys/class/net/r0/queues/rx-0/rps_cpus";
    scene.middle.sh(steer, Duration::from_secs(5))?.ok_or_error("RPS").map(drop)
}

/// Has the router's first device receive in a thread of the kernel on core 1, and host b merge what it gets.
///
/// # Errors
/// What could not be set up.
pub fn receive_on_core_1(scene: &TwoHosts) -> io::Result<()> {
    let time = Duration::from_secs(5);
    scene.b.run("ethtool -K eth0 gro on", time)?.ok_or_error("GRO")?;
    scene.middle.run("ethtool -K r0 gro on", time)?.ok_or_error("GRO")?;
    let threaded = "echo 1 > /sys/class/net/r0/threaded && pgrep '^napi/r0-' | xargs -n 1 taskset -p 2";
    scene.middle.sh(threaded, time)?.ok_or_error("threaded NAPI")
}
