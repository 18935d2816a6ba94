//! Devices for a program whose graph is not a router's: the tester.
//!
//! One set of devices a process: DPDK keeps the packet memory that it was given first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quiver_buffer::Pool;

use crate::device::{Device, DeviceError, Limits, device_name};
use crate::eal::{self, Settings};
use crate::port::DpdkPort;
use crate::times::{self, Takes, TimedRx, TimedTx, TimesError};
use crate::wish::DeviceConfig;
use crate::{memory, pci};

/// How often a device is looked at whose peer is away.
const PEER_POLL: Duration = Duration::from_secs(1);
/// Bytes of a frame around its IP packet, without FCS.
const ETHERNET_HEADER: usize = 14;
/// What no packet of the tester's needs: several buffers, checksums that the device finishes.
const LIMITS: Limits = Limits { no_multi_segment: true, no_tx_checksum: true, fast_free: true };
/// Counters of frames that the device had to drop because nobody took them.
const MISSED: [&str; 2] = ["rx_missed_errors", "rx_mbuf_allocation_errors"];

/// What is wanted of a device.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// PCI address, or a virtual device with its arguments: `net_memif0,role=server,…`.
    pub devargs: &'a str,
    /// Address to filter for, where the device can be told; it takes all frames in any case.
    pub mac: Option<[u8; 6]>,
    /// Longest frame, bytes without FCS.
    pub frame: usize,
    /// Queues to receive, each for a thread; flows are spread over them by the device.
    pub rx_queues: u16,
    /// Queues to send.
    pub tx_queues: u16,
}

/// The devices of a program.
#[derive(Debug)]
pub struct Devices {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    device: Arc<Device>,
    mac: Option<[u8; 6]>,
    mtu: u32,
    /// When to look for its peer again.
    due: Instant,
    gone: bool,
}

/// Closes the gate, has every thread come round, and has `change` done to the port.
fn while_shut<T>(
    device: &Device,
    come_round: &mut dyn FnMut(),
    change: impl FnOnce(u16) -> Result<T, DeviceError>,
) -> Option<Result<T, DeviceError>> {
    let port = device.shut()?;
    come_round();
    Some(change(port))
}

impl Entry {
    /// Sets what a device that runs is to take.
    fn settle(&self, come_round: &mut dyn FnMut()) -> Result<(), String> {
        let (device, mtu) = (&self.device, self.mtu);
        if device.gate().is_none() {
            return Ok(());
        }
        if let Some(mac) = self.mac.filter(|mac| device.mac() != Some(*mac)) {
            // Where it cannot it takes all frames, as it is told next.
            let _ = device.set_mac(mac);
        }
        device.set_promiscuous(true);
        if mtu <= device.mtu() || u16::try_from(mtu).is_ok_and(|mtu| device.set_mtu(mtu).is_ok()) {
            return Ok(());
        }
        let set = while_shut(device, come_round, |port| device.restart(port, |config| config.mtu = mtu));
        set.unwrap_or(Ok(())).map_err(|error| error.to_string())
    }

    /// Looks after the device: it may have gone, and its peer may have come.
    fn look(&mut self, now: Instant, come_round: &mut dyn FnMut()) {
        let (_, gone) = self.device.events();
        if gone {
            self.gone = true;
            let device = &self.device;
            while_shut(device, come_round, |port| {
                device.close(port);
                Ok(())
            });
        }
        if self.gone || now < self.due {
            return;
        }
        self.due = now + PEER_POLL;
        // A start that has found its peer goes on for a moment in a thread of DPDK's, which stopping the device would pull the
        // memory from under: it has until the next look.
        let started = match self.device.parked() {
            Some(port) => self.device.start(port).is_ok(),
            None if self.device.waits_for_peer() && !self.device.link().0.up => {
                let device = &self.device;
                while_shut(device, come_round, |port| device.start_again(port)).is_some_and(|started| started.is_ok())
            }
            None => false,
        };
        if started && let Err(error) = self.settle(come_round) {
            tracing::warn!(target: "dpdk", "{}: {error}", self.device.name);
        }
    }
}

impl Devices {
    /// Starts DPDK for these devices, which are opened one by one then.
    ///
    /// # Errors
    /// DPDK does not start.
    pub fn start<'a>(devargs: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let allowed = devargs.map(device_name).filter(|name| pci::is_address(name)).map(str::to_owned).collect();
        eal::start(&Settings { allowed, ..Settings::default() })?;
        Ok(Self { entries: Vec::new() })
    }

    /// Opens a device for packets in the memory of `pools`.
    ///
    /// # Errors
    /// Why it cannot be used, in a line.
    pub fn open(&mut self, wanted: &Wanted<'_>, pools: &[Arc<Pool>]) -> Result<DpdkPort, String> {
        memory::share(pools)?;
        let wish = DeviceConfig { rx_queues: Some(wanted.rx_queues), no_rx_interrupts: true, ..DeviceConfig::default() };
        let device = Device::open(wanted.devargs, &wish, LIMITS, wanted.tx_queues).map_err(|error| error.to_string())?;
        let most = device.frame_max() as usize;
        if wanted.frame > most {
            return Err(format!("frames have up to {} bytes without FCS, and the device takes {most}", wanted.frame));
        }
        let mtu = wanted.frame.saturating_sub(ETHERNET_HEADER) as u32;
        let entry = Entry { device: device.clone(), mac: wanted.mac, mtu, due: Instant::now() + PEER_POLL, gone: false };
        // No thread polls it yet.
        entry.settle(&mut || ())?;
        let port = DpdkPort::new(device).map_err(|error| error.to_string())?;
        self.entries.push(entry);
        Ok(port)
    }

    /// Looks after the devices. `come_round` is to return when every thread of the graph has ended the turn that it was in.
    pub fn serve(&mut self, come_round: &mut dyn FnMut()) {
        let now = Instant::now();
        self.entries.iter_mut().for_each(|entry| entry.look(now, come_round));
    }

    fn device(&self, devargs: &str) -> Option<&Arc<Device>> {
        let name = device_name(devargs);
        self.entries.iter().find(|entry| entry.device.name == name).map(|entry| &entry.device)
    }

    /// Has devices give frames times, from now on for as long as they are open: those that are sent by one, and those that
    /// come to the other. One that was not set up for it is stopped and started again. `come_round` as in
    /// [`serve`](Self::serve).
    ///
    /// # Errors
    /// A driver gives no times, or the two cards have different clocks.
    pub fn switch_times_on(&self, devargs: [&str; 2], come_round: &mut dyn FnMut()) -> Result<(), TimesError> {
        let [Some(from), Some(to)] = devargs.map(|devargs| self.device(devargs)) else { return Ok(()) };
        times::switch_on(from, come_round)?;
        if Arc::ptr_eq(from, to) {
            return Ok(());
        }
        times::switch_on(to, come_round)?;
        times::check_clocks(from, to)
    }

    /// What sends frames by the first device and tells when they left, and what tells when those came to the second that
    /// `takes` takes; their times are [on](Self::switch_times_on). None where one of them is not open.
    ///
    /// # Errors
    /// The clock cannot be read.
    pub fn timed(&self, devargs: [&str; 2], takes: Takes) -> Result<Option<(TimedTx, TimedRx)>, TimesError> {
        let [Some(from), Some(to)] = devargs.map(|devargs| self.device(devargs)) else { return Ok(None) };
        Ok(Some((TimedTx::new(from.clone()), TimedRx::new(to.clone(), takes)?)))
    }

    /// Frames that a device has dropped because nobody took them in time.
    pub fn missed(&self, devargs: &str) -> u64 {
        let counters = self.device(devargs).map_or_else(Vec::new, |device| device.counters());
        counters.iter().filter(|(name, _)| MISSED.contains(&name.as_str())).map(|(_, count)| count).sum()
    }
}
