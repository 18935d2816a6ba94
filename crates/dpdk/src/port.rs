//! A device as the router's control side sees it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use quiver_graph::{Link, Port, PortState, RxQueue, TxQueue};

use crate::device::{Device, Setup, name_of};
use crate::ffi;
use crate::rx::DpdkRx;
use crate::tx::DpdkTx;
use crate::wish::RSS;

/// The control side of a device.
pub struct DpdkPort {
    device: Arc<Device>,
    /// The interface's address, for devices that have none.
    mac: [u8; 6],
    present: bool,
}

impl DpdkPort {
    /// A port of a device that runs.
    pub fn new(device: Arc<Device>) -> io::Result<Self> {
        let own = device.mac().filter(|mac| *mac != [0; 6] && mac[0] & 1 == 0);
        let mac = match own {
            Some(mac) => mac,
            None => random_mac()?,
        };
        Ok(Self { device, mac, present: true })
    }
}

/// `02:fe` and four random bytes: locally administered, as VPP's interfaces without an address of their own have them.
fn random_mac() -> io::Result<[u8; 6]> {
    let mut mac = [0x02, 0xfe, 0, 0, 0, 0];
    // SAFETY: pointer and length describe the last four bytes of `mac`.
    let got = unsafe { libc::getrandom(mac[2..].as_mut_ptr().cast(), 4, 0) };
    if got == 4 { Ok(mac) } else { Err(io::Error::last_os_error()) }
}

impl Port for DpdkPort {
    fn input_node(&self) -> &'static str {
        "dpdk-input"
    }

    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        let queues = self.device.setup().config.rx_queues;
        Ok((0..queues).map(|queue| Box::new(DpdkRx::new(self.device.clone(), queue)) as Box<dyn RxQueue>).collect())
    }

    fn open_tx(&mut self, _thread: usize) -> io::Result<Box<dyn TxQueue>> {
        Ok(Box::new(DpdkTx::new(self.device.clone())))
    }

    fn link(&mut self) -> Link {
        self.device.link().0
    }

    fn mac(&self) -> Option<[u8; 6]> {
        Some(self.mac)
    }

    fn max_frame(&self) -> usize {
        self.device.frame_max() as usize
    }

    fn refresh(&mut self) -> io::Result<PortState> {
        let present = self.device.gate().is_some();
        let reopened = present && !std::mem::replace(&mut self.present, present);
        Ok(PortState { present, link: self.link(), mac: self.mac(), max_frame: self.max_frame(), reopened })
    }

    fn set_up(&mut self, up: bool) -> io::Result<()> {
        self.device.set_link(up).map_err(|error| io::Error::from_raw_os_error(error.saturating_neg()))
    }

    fn numa(&self) -> Option<usize> {
        usize::try_from(self.device.setup().info.numa).ok()
    }

    fn describe(&self) -> Vec<String> {
        describe(&self.device)
    }

    fn clear_counters(&mut self) {
        self.device.clear_counters();
    }
}

impl Drop for DpdkPort {
    fn drop(&mut self) {
        self.device.retire();
    }
}

/// The lines of `show hardware-interfaces`.
fn describe(device: &Device) -> Vec<String> {
    let Setup { info, config } = device.setup().clone();
    if device.gate().is_none() {
        let state = if device.parked().is_some() { "waits for its peer" } else { "is gone" };
        return vec![format!("DPDK device {}, driver {}, {state}", device.name, name_of(&info.driver))];
    }
    let (link, details) = device.link();
    let carrier = if link.up { "up" } else { "down" };
    let duplex = if details.full_duplex != 0 { "full" } else { "half" };
    let mut lines = vec![
        format!("DPDK device {}, driver {}, bus {}", device.name, name_of(&info.driver), name_of(&info.bus)),
        format!("carrier {carrier} {duplex} duplex mtu {}{}", config.mtu, if device.copying { " copying" } else { "" }),
        format!(
            "rx: queues {} (max {}), desc {} (min {} max {} align {})",
            config.rx_queues, info.rx_queues, config.rx_descriptors, info.rx_min, info.rx_max, info.rx_align
        ),
        format!(
            "tx: queues {} (max {}), desc {} (min {} max {} align {})",
            config.tx_queues, info.tx_queues, config.tx_descriptors, info.tx_min, info.tx_max, info.tx_align
        ),
        format!("max rx packet len: {}, numa {}", info.max_frame, info.numa),
        format!("promiscuous: unicast {} all-multicast on", if device.promiscuous() { "on" } else { "off" }),
        format!("rx interrupts: {}", if device.has_interrupts.load(Ordering::Relaxed) { "on" } else { "off" }),
    ];
    for (name, offloads, tx) in [
        ("rx offload avail:", info.rx_offloads, false),
        ("rx offload active:", config.rx_offloads, false),
        ("tx offload avail:", info.tx_offloads, true),
        ("tx offload active:", config.tx_offloads, true),
    ] {
        lines.push(format!("{name:<19}{}", offload_names(offloads, tx)));
    }
    lines.push(format!("{:<19}{}", "rss avail:", rss_names(info.rss)));
    lines.push(format!("{:<19}{}", "rss active:", rss_names(config.rss)));
    for (name, tx) in [("rx burst mode:", false), ("tx burst mode:", true)] {
        if let Some(mode) = device.mode(tx) {
            lines.push(format!("{name:<19}{mode}"));
        }
    }
    let counters: Vec<_> = device.counters().into_iter().filter(|(_, value)| *value != 0).collect();
    if !counters.is_empty() {
        lines.push("extended stats:".into());
        lines.extend(counters.iter().map(|(name, value)| format!("  {name:<44}{value:>16}")));
    }
    lines
}

fn offload_names(offloads: u64, tx: bool) -> String {
    let names: Vec<String> = (0..64)
        .map(|bit| 1_u64 << bit)
        .filter(|flag| offloads & flag != 0)
        .map(|flag| {
            let name = ffi::qd_offload_name(i32::from(tx), flag);
            // SAFETY: DPDK gives a C string that stays.
            unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().to_lowercase().replace('_', "-")
        })
        .collect();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}

fn rss_names(bits: u64) -> String {
    let names: Vec<&str> = RSS.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
    if names.is_empty() { "none".into() } else { names.join(" ") }
}
