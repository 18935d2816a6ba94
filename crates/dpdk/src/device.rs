//! A device of DPDK's, shared by its port on the main thread and its queues on the workers.
//!
//! Invariants (cited by `unsafe` code here and in the queues):
//! * D1: while [`Device::gate`] gives a port, that port is configured with at least the queues that were handed out, and runs.
//!   Before it is stopped, the gate is closed and every thread has come round ([`Device::shut`] says who sees to that). Threads
//!   outside the graph use the port inside [`Device::visit`] only, which `shut` waits for.
//! * D2: a receive queue is used by one thread at a time (it is `&mut` in its owner); a transmit queue under its lock.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quiver_graph::Link;

use crate::eal::reason;
use crate::ffi::{self, PortConfig, PortInfo};
use crate::times::Listener;
use crate::wish::{DeviceConfig, RSS_DEFAULT};

/// Largest frame that interfaces have, bytes without FCS.
pub const FRAME_MAX: u32 = 9216 + 14;
/// Bytes around an IP packet: Ethernet header.
const ETHERNET_HEADER: u32 = 14;
/// Two VLAN tags may come on top of what a device calls its MTU.
const TAGS: u32 = 8;
/// Descriptors of a queue unless driver or configuration say something else, as in VPP.
const DESCRIPTORS: u16 = 1024;
/// Ports that DPDK can have.
const PORTS: usize = 32;
/// The gate is closed.
const SHUT: u32 = u32::MAX;
/// Bits of `RTE_ETH_DEV_…`: tells when its link changes; tells when it goes.
const TELLS_LINK: u32 = 1 << 1;
const TELLS_REMOVAL: u32 = 1 << 3;
/// Bits of `RTE_ETH_RX_OFFLOAD_…` and `RTE_ETH_TX_OFFLOAD_…`; the shim asserts them.
const RX_SCATTER: u64 = 1 << 13;
const RX_TIMES: u64 = 1 << 14;
const TX_SEGMENTS: u64 = 1 << 15;
const TX_CHECKSUMS: u64 = 1 << 2 | 1 << 3;
const TX_FAST_FREE: u64 = 1 << 16;

/// Drivers that work only on packets in memory that they know, so what they receive is copied: they find an mbuf by the place
/// of its bytes.
const COPYING: [&str; 1] = ["net_af_xdp"];
/// Drivers that have as many transmit queues as receive queues.
const PAIRED: [&str; 1] = ["net_tap"];
/// Virtual devices that have interrupts for their queues.
const TELLING: [&str; 3] = ["net_tap", "net_virtio_user", "net_vhost"];
/// Packets of DPDK's own memory that copying drivers share.
const COPYING_PACKETS: u32 = 8191;

/// What has happened to ports, told on a thread of DPDK's: bit 0 link, bit 1 gone.
static EVENTS: [AtomicU32; PORTS] = [const { AtomicU32::new(0) }; PORTS];
static WAKE: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// What to call, on any thread, when a device has something to tell.
pub fn wake_by(signal: impl Fn() + Send + 'static) {
    *WAKE.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(signal));
}

fn wake() {
    if let Some(signal) = &*WAKE.lock().unwrap_or_else(PoisonError::into_inner) {
        signal();
    }
}

extern "C" fn on_event(port: u16, event: c_int) {
    let bit = match event {
        ffi::EVENT_LINK => 1,
        ffi::EVENT_GONE | ffi::EVENT_RESET => 2,
        _ => return,
    };
    if let Some(events) = EVENTS.get(usize::from(port)) {
        events.fetch_or(bit, Ordering::Release);
        wake();
    }
}

/// What holds for all devices.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// No packets over several buffers.
    pub no_multi_segment: bool,
    /// Finish checksums in software.
    pub no_tx_checksum: bool,
    /// Drivers may free buffers without a look at each.
    pub fast_free: bool,
}

/// Why a device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{device}: {doing}: {reason}")]
pub struct DeviceError {
    /// Its name.
    pub device: String,
    /// What was tried.
    pub doing: String,
    /// What DPDK said.
    pub reason: String,
}

/// A transmit queue: who uses it, and its lock.
#[derive(Debug, Default)]
struct TxSlot {
    users: AtomicU32,
    lock: Mutex<()>,
}

/// What is known of a device and how it is set up; changes only while the gate is closed.
#[derive(Clone)]
pub struct Setup {
    /// What it is and can do.
    pub info: PortInfo,
    /// How it is set up.
    pub config: PortConfig,
}

/// A device.
pub struct Device {
    /// PCI address, or name of the virtual device.
    pub name: String,
    /// What it is attached by.
    devargs: String,
    limits: Limits,
    wish: DeviceConfig,
    /// It looks for its peer only when it is started.
    waits: bool,
    /// The port, while queues may use it.
    gate: AtomicU32,
    /// A port that is set up but does not start yet: its peer is not there.
    parked: AtomicU32,
    setup: Mutex<Setup>,
    /// Largest frame that it sends now, bytes without FCS.
    tx_frame: AtomicU32,
    /// What it does when sending, bits of `RTE_ETH_TX_OFFLOAD_…`.
    tx_does: AtomicU32,
    /// Packets come in memory of DPDK's.
    pub copying: bool,
    /// A queue has found that there are interrupts for it.
    pub has_interrupts: AtomicBool,
    tx: Vec<TxSlot>,
    /// Its interface has gone.
    retired: AtomicBool,
    /// Held by a thread outside the graph while it uses the port.
    visitor: Mutex<()>,
    /// Who is shown what it receives, with times.
    pub listener: Listener,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.name).field("port", &self.gate()).finish_non_exhaustive()
    }
}

fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// The text of a name of the shim's.
pub fn name_of(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The device's part of what it is attached by: `net_memif0` of `net_memif0,role=server`.
pub fn device_name(devargs: &str) -> &str {
    devargs.split_once(',').map_or(devargs, |(name, _)| name)
}

/// The port of a device that DPDK knows.
fn find(name: &str) -> Option<u16> {
    let name = c_text(name);
    // SAFETY: a C string that lives over the call.
    let port = unsafe { ffi::qd_port_by_name(name.as_ptr()) };
    u16::try_from(port).ok()
}

fn info_of(port: u16) -> Result<PortInfo, c_int> {
    let mut info = std::mem::MaybeUninit::<PortInfo>::zeroed();
    // SAFETY: the structure is the shim's, and all zeroes is a value of it.
    match unsafe { (ffi::qd_port_info(port, info.as_mut_ptr()), info.assume_init()) } {
        (0.., info) => Ok(info),
        (error, _) => Err(error),
    }
}

impl Device {
    /// Attaches a device, sets it up and starts it.
    ///
    /// # Errors
    /// No such device, or what DPDK does not like about it; it is given up again then.
    pub fn open(devargs: &str, wish: &DeviceConfig, limits: Limits, threads: u16) -> Result<Arc<Self>, DeviceError> {
        let name = device_name(devargs).to_owned();
        let port = attach(&name, devargs)?;
        let failed = |doing: &str, error| DeviceError { device: name.clone(), doing: doing.into(), reason: reason(error) };
        let opened = info_of(port).map_err(|error| failed("asking for what it is", error)).and_then(|info| {
            let copying = COPYING.contains(&name_of(&info.driver).as_str());
            let config = plan(&info, wish, limits, threads, copying);
            let setup = set_up(port, &name, info, config)?;
            Ok((setup, copying))
        });
        let (setup, copying) = opened.inspect_err(|_| close(port))?;
        // Such a device waits for its peer.
        let waits = needs_peer(&name_of(&setup.info.driver), devargs);
        let device = Arc::new(Self {
            waits,
            tx: (0..setup.config.tx_queues).map(|_| TxSlot::default()).collect(),
            devargs: devargs.to_owned(),
            limits,
            wish: wish.clone(),
            gate: AtomicU32::new(SHUT),
            parked: AtomicU32::new(SHUT),
            tx_frame: AtomicU32::new(0),
            tx_does: AtomicU32::new(0),
            copying,
            has_interrupts: AtomicBool::new(false),
            retired: AtomicBool::new(false),
            visitor: Mutex::new(()),
            listener: Listener::default(),
            setup: Mutex::new(setup),
            name,
        });
        match device.start(port) {
            Err(error) if !waits => Err(error),
            _ => Ok(device),
        }
    }

    /// Starts a port that is set up, and opens the gate; parks it where it does not start.
    ///
    /// # Errors
    /// Why it does not start.
    pub fn start(&self, port: u16) -> Result<(), DeviceError> {
        // SAFETY: a number only.
        match unsafe { ffi::qd_port_start(port) } {
            error if error < 0 => {
                self.parked.store(u32::from(port), Ordering::Relaxed);
                Err(DeviceError { device: self.name.clone(), doing: "starting it".into(), reason: reason(error) })
            }
            _ => {
                self.parked.store(SHUT, Ordering::Relaxed);
                self.open_gate(port);
                Ok(())
            }
        }
    }

    /// Stops a port that was [shut](Self::shut), and starts it again: its peer may be back.
    ///
    /// # Errors
    /// It does not start: its peer is not.
    pub fn start_again(&self, port: u16) -> Result<(), DeviceError> {
        // SAFETY: D1: the gate is closed and no thread is in a burst.
        unsafe { ffi::qd_port_stop(port) };
        self.start(port)
    }

    /// The port that is set up but does not start yet.
    pub fn parked(&self) -> Option<u16> {
        u16::try_from(self.parked.load(Ordering::Relaxed)).ok()
    }

    /// Whether it looks for its peer only when it is started.
    pub fn waits_for_peer(&self) -> bool {
        self.waits
    }

    /// The port, while queues may use it.
    #[inline(always)]
    pub fn gate(&self) -> Option<u16> {
        match self.gate.load(Ordering::Acquire) {
            SHUT => None,
            port => Some(port as u16),
        }
    }

    fn open_gate(&self, port: u16) {
        let config = self.setup().config.clone();
        // SAFETY: a number goes in and comes out.
        let mtu = unsafe { ffi::qd_port_mtu(port) };
        self.tx_frame.store(u32::try_from(mtu).unwrap_or(1500) + ETHERNET_HEADER + TAGS, Ordering::Relaxed);
        self.tx_does.store(config.tx_offloads as u32, Ordering::Relaxed);
        self.gate.store(u32::from(port), Ordering::Release);
    }

    /// Closes the gate and gives the port. The caller lets every thread of the router come round before it stops the port.
    #[must_use]
    pub fn shut(&self) -> Option<u16> {
        let port = self.gate.swap(SHUT, Ordering::AcqRel);
        // Waits until the present visitor has left. Later ones find the gate closed.
        drop(self.visitor.lock().unwrap_or_else(PoisonError::into_inner));
        (port != SHUT).then_some(port as u16)
    }

    /// Lets a thread outside the graph use the port; `None` where the port does not run.
    pub fn visit<T>(&self, with: impl FnOnce(u16) -> T) -> Option<T> {
        let _visitor = self.visitor.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate().map(with)
    }

    /// Whether it can give all that it receives times.
    pub fn can_time(&self) -> bool {
        self.setup().info.rx_offloads & RX_TIMES != 0
    }

    /// Whether it is set up to give all that it receives times.
    pub fn times(&self) -> bool {
        self.setup().config.rx_offloads & RX_TIMES != 0
    }

    /// Sets a port up, after it was [shut](Self::shut), to give all that it receives times, and to look at each mbuf that it
    /// sends: drivers that may free them without a look do not see which are to have times.
    ///
    /// # Errors
    /// The device refuses.
    pub fn restart_with_times(&self, port: u16) -> Result<(), DeviceError> {
        self.restart(port, |config| {
            config.rx_offloads |= RX_TIMES;
            config.tx_offloads &= !TX_FAST_FREE;
        })
    }

    /// Stops, closes and gives up a port that nobody uses any more.
    pub fn close(&self, port: u16) {
        close(port);
    }

    /// Attaches a device again that had gone.
    ///
    /// # Errors
    /// It is still away, or cannot be set up.
    pub fn reopen(&self) -> Result<(), DeviceError> {
        let port = attach(&self.name, &self.devargs)?;
        let before = self.setup().config.clone();
        let failed =
            |error| DeviceError { device: self.name.clone(), doing: "asking for what it is".into(), reason: reason(error) };
        let setup = info_of(port).map_err(failed).and_then(|info| {
            let queues = (info.rx_queues < before.rx_queues || info.tx_queues < before.tx_queues).then(|| DeviceError {
                device: self.name.clone(),
                doing: "opening it again".into(),
                reason: "another device with fewer queues is in its place".into(),
            });
            queues.map_or(Ok(()), Err)?;
            let config = plan(&info, &self.wish, self.limits, before.tx_queues, self.copying);
            let config = PortConfig { rx_queues: before.rx_queues, tx_queues: before.tx_queues, mtu: before.mtu, ..config };
            set_up(port, &self.name, info, config)
        });
        let setup = setup.inspect_err(|_| close(port))?;
        *self.setup() = setup;
        self.start(port)
    }

    /// Sets a port up anew, after it was [shut](Self::shut) and every thread has come round: other rings, another MTU.
    /// Packets that wait in its queues are lost.
    ///
    /// # Errors
    /// The device refuses; it is then set up as before.
    pub fn restart(&self, port: u16, change: impl FnOnce(&mut PortConfig)) -> Result<(), DeviceError> {
        let Setup { info, config: before } = self.setup().clone();
        let mut config = before.clone();
        change(&mut config);
        // SAFETY: D1: the gate is closed and no thread is in a burst.
        unsafe { ffi::qd_port_stop(port) };
        let changed = set_up(port, &self.name, info.clone(), config);
        let (setup, refused) = match changed {
            Ok(setup) => (Ok(setup), Ok(())),
            Err(error) => (set_up(port, &self.name, info, before), Err(error)),
        };
        *self.setup() = setup?;
        match self.start(port) {
            Err(error) if !self.waits => Err(error),
            _ => refused,
        }
    }

    /// What it is and how it is set up.
    pub fn setup(&self) -> MutexGuard<'_, Setup> {
        self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Largest frame that it sends, bytes without FCS.
    #[inline(always)]
    pub fn tx_frame(&self) -> usize {
        self.tx_frame.load(Ordering::Relaxed) as usize
    }

    /// Whether it sends packets that lie in several buffers.
    #[inline(always)]
    pub fn sends_segments(&self) -> bool {
        u64::from(self.tx_does.load(Ordering::Relaxed)) & TX_SEGMENTS != 0
    }

    /// Whether it finishes checksums of TCP and UDP.
    #[inline(always)]
    pub fn sends_checksums(&self) -> bool {
        u64::from(self.tx_does.load(Ordering::Relaxed)) & TX_CHECKSUMS == TX_CHECKSUMS
    }

    /// Largest frame that it could be set up for, bytes without FCS.
    pub fn frame_max(&self) -> u32 {
        let setup = self.setup();
        let info = &setup.info;
        // Drivers that do not say what they take have the highest number there.
        let mtu = if info.max_mtu == 0 || info.max_mtu >= 0xffff { info.max_frame.saturating_sub(18) } else { info.max_mtu };
        // A device cannot be worse than it is now.
        mtu.max(setup.config.mtu).saturating_add(ETHERNET_HEADER).min(FRAME_MAX)
    }

    /// MTU that it is set up for.
    pub fn mtu(&self) -> u32 {
        self.setup().config.mtu
    }

    /// Sets the MTU of a running device.
    ///
    /// # Errors
    /// It cannot while it runs; [restart](Self::restart) it then.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), c_int> {
        let Some(port) = self.gate() else { return Err(-libc::ENODEV) };
        // SAFETY: numbers only.
        match unsafe { ffi::qd_port_set_mtu(port, mtu) } {
            0 => {
                self.setup().config.mtu = u32::from(mtu);
                self.open_gate(port);
                Ok(())
            }
            error => Err(error),
        }
    }

    /// The transmit queue with the fewest users, for one more.
    pub fn take_tx(&self) -> u16 {
        let least = (0..self.tx.len()).min_by_key(|queue| self.tx[*queue].users.load(Ordering::Relaxed)).unwrap_or(0);
        if let Some(slot) = self.tx.get(least) {
            slot.users.fetch_add(1, Ordering::Relaxed);
        }
        least as u16
    }

    /// A user of a transmit queue ends.
    pub fn leave_tx(&self, queue: u16) {
        if let Some(slot) = self.tx.get(usize::from(queue)) {
            slot.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Excludes other users of a transmit queue: there are some where a device has fewer queues than the router threads.
    #[inline(always)]
    pub fn lock_tx(&self, queue: u16) -> Option<MutexGuard<'_, ()>> {
        Some(self.tx.get(usize::from(queue))?.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Link and duplex now.
    pub fn link(&self) -> (Link, ffi::LinkInfo) {
        let mut link = ffi::LinkInfo::default();
        if let Some(port) = self.gate() {
            // SAFETY: the structure is the shim's.
            unsafe { ffi::qd_port_link(port, &raw mut link) };
        }
        (Link { up: link.up != 0, speed: Some(link.bits_per_second).filter(|speed| *speed > 0) }, link)
    }

    /// Takes the link up or down; devices without such a switch are left alone.
    pub fn set_link(&self, up: bool) -> Result<(), c_int> {
        let Some(port) = self.gate() else { return Ok(()) };
        // SAFETY: numbers only.
        match unsafe { ffi::qd_port_set_link(port, c_int::from(up)) } {
            0 => Ok(()),
            error if -error == libc::ENOTSUP => Ok(()),
            error => Err(error),
        }
    }

    /// Its link address.
    pub fn mac(&self) -> Option<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: six bytes to write to.
        let result = unsafe { ffi::qd_port_mac(self.gate()?, mac.as_mut_ptr()) };
        (result == 0).then_some(mac)
    }

    /// Has it filter for another link address.
    pub fn set_mac(&self, mac: [u8; 6]) -> Result<(), c_int> {
        let Some(port) = self.gate() else { return Ok(()) };
        // SAFETY: six bytes to read.
        match unsafe { ffi::qd_port_set_mac(port, mac.as_ptr()) } {
            0 => Ok(()),
            error => Err(error),
        }
    }

    /// Has it deliver frames to any address; gives what it does now.
    pub fn set_promiscuous(&self, on: bool) -> bool {
        let Some(port) = self.gate() else { return on };
        // SAFETY: numbers only.
        unsafe {
            if (ffi::qd_port_promiscuous(port) == 1) != on {
                ffi::qd_port_set_promiscuous(port, c_int::from(on));
            }
            ffi::qd_port_promiscuous(port) == 1
        }
    }

    /// Whether it delivers frames to any address.
    pub fn promiscuous(&self) -> bool {
        // SAFETY: a number only.
        self.gate().is_some_and(|port| unsafe { ffi::qd_port_promiscuous(port) } == 1)
    }

    /// Counters by name, its driver's own included.
    pub fn counters(&self) -> Vec<(String, u64)> {
        extern "C" fn add(to: *mut c_void, name: *const c_char, value: u64) {
            // SAFETY: the list below, and a C string.
            let (list, name) = unsafe { (&mut *to.cast::<Vec<(String, u64)>>(), CStr::from_ptr(name)) };
            list.push((name.to_string_lossy().into_owned(), value));
        }
        let mut list: Vec<(String, u64)> = Vec::new();
        if let Some(port) = self.gate() {
            // SAFETY: `add` gets back the list, which nobody else touches meanwhile.
            unsafe { ffi::qd_port_counters(port, add, (&raw mut list).cast()) };
        }
        list
    }

    /// Zeroes its counters.
    pub fn clear_counters(&self) {
        if let Some(port) = self.gate() {
            // SAFETY: a number only.
            unsafe { ffi::qd_port_clear_counters(port) };
        }
    }

    /// How its driver receives (`tx`: sends), in the driver's words.
    pub fn mode(&self, tx: bool) -> Option<String> {
        let mut text = [0_u8; 128];
        // SAFETY: as many bytes as said.
        let result = unsafe { ffi::qd_port_mode(self.gate()?, c_int::from(tx), text.as_mut_ptr().cast(), text.len() as u32) };
        (result == 0).then(|| name_of(&text))
    }

    /// What has happened since the last call: the link may have changed, the device has gone.
    pub fn events(&self) -> (bool, bool) {
        let port = self.gate().map(usize::from).and_then(|port| EVENTS.get(port));
        let bits = port.map_or(0, |events| events.swap(0, Ordering::Acquire));
        (bits & 1 != 0, bits & 2 != 0)
    }

    /// Whether it tells of its link by itself.
    pub fn tells_link(&self) -> bool {
        self.setup().config.link_events != 0
    }

    /// Its interface goes: it is closed when no thread uses it any more.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        wake();
    }

    /// Whether its interface has gone.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Whoever drops it last is alone with it.
        if let Some(port) = self.shut().or(self.parked()) {
            self.close(port);
        }
    }
}

/// Whether a device looks for its peer only when it is started: a memif client.
fn needs_peer(driver: &str, devargs: &str) -> bool {
    driver == "net_memif" && !devargs.split(',').any(|word| matches!(word, "role=server" | "role=master"))
}

/// Has DPDK take a device, unless it has it already (PCI devices named at its start), and finds its port.
fn attach(name: &str, devargs: &str) -> Result<u16, DeviceError> {
    if let Some(port) = find(name) {
        return Ok(port);
    }
    let failed = |reason: String| DeviceError { device: name.into(), doing: "attaching it".into(), reason };
    let text = c_text(devargs);
    // SAFETY: a C string that lives over the call.
    let result = unsafe { ffi::qd_attach(text.as_ptr()) };
    if result < 0 {
        let hint = if crate::pci::is_address(name) {
            "; is it bound to vfio-pci, and was DPDK started with PCI devices?"
        } else {
            "; is the driver's package installed (Debian: librte-net-*), and are its arguments right?"
        };
        return Err(failed(format!("{}{hint}", reason(result))));
    }
    find(name).ok_or_else(|| failed("it is no network device".into()))
}

fn close(port: u16) {
    // SAFETY: D1: no queue uses the port, or it never had any.
    unsafe {
        ffi::qd_port_stop(port);
        ffi::qd_port_close(port, 1);
    }
}

/// What to ask of a device.
fn plan(info: &PortInfo, wish: &DeviceConfig, limits: Limits, threads: u16, copying: bool) -> PortConfig {
    let own = |own: u16| if own == 0 { DESCRIPTORS } else { own };
    let segments = if limits.no_multi_segment { (0, 0) } else { (RX_SCATTER, TX_SEGMENTS) };
    let checksums = if limits.no_tx_checksum { 0 } else { TX_CHECKSUMS };
    // Buffers of a packet in several pieces must be looked at one by one.
    let fast_free = if limits.fast_free && limits.no_multi_segment { TX_FAST_FREE } else { 0 };
    let rx_queues = wish.rx_queues.unwrap_or(1).min(info.rx_queues.max(1));
    let tx_queues = wish.tx_queues.unwrap_or(threads).min(info.tx_queues.max(1));
    let driver = name_of(&info.driver);
    let paired = PAIRED.contains(&driver.as_str());
    let tells = name_of(&info.bus) != "vdev" || TELLING.contains(&driver.as_str());
    PortConfig {
        rx_offloads: segments.0 & info.rx_offloads,
        tx_offloads: (segments.1 | checksums | fast_free) & info.tx_offloads,
        rss: wish.rss.unwrap_or(RSS_DEFAULT),
        mtu: 0,
        rx_queues,
        tx_queues: if paired { rx_queues } else { tx_queues },
        rx_descriptors: wish.rx_descriptors.unwrap_or_else(|| own(info.default_rx)),
        tx_descriptors: wish.tx_descriptors.unwrap_or_else(|| own(info.default_tx)),
        link_events: u8::from(info.flags & TELLS_LINK != 0),
        removal_events: u8::from(info.flags & TELLS_REMOVAL != 0),
        rx_interrupts: u8::from(tells && !wish.no_rx_interrupts),
        copying: u8::from(copying),
        numa: info.numa,
    }
}

/// Sets a stopped port up.
fn set_up(port: u16, name: &str, info: PortInfo, mut config: PortConfig) -> Result<Setup, DeviceError> {
    let failed =
        |doing: &str, error: c_int| DeviceError { device: name.to_owned(), doing: doing.to_owned(), reason: reason(error) };
    if config.copying != 0 {
        // SAFETY: a number only.
        match unsafe { ffi::qd_pool_create_copying(COPYING_PACKETS) } {
            0 => {}
            error => return Err(failed("making memory for copies", error)),
        }
    }
    let mut step = std::ptr::null();
    // SAFETY: the structure is the shim's; `step` becomes a text that stays.
    let result = unsafe { ffi::qd_port_open(port, &raw mut config, &raw mut step) };
    if result < 0 {
        // SAFETY: set before anything that may fail.
        let step = unsafe { CStr::from_ptr(step) };
        return Err(failed(&step.to_string_lossy(), result));
    }
    // SAFETY: a number only.
    match unsafe { ffi::qd_pool_map(port) } {
        error if -error == libc::EOPNOTSUPP => {
            let reason = "it uses physical addresses, for which packet buffers must lie on 2 MB pages and the router must be root: \
                sysctl -w vm.nr_hugepages=512, or turn the IOMMU on and bind it to vfio-pci";
            return Err(DeviceError { device: name.into(), doing: "giving it the packet memory".into(), reason: reason.into() });
        }
        error if error < 0 => return Err(failed("giving it the packet memory", error)),
        _ => {}
    }
    // SAFETY: a number, and a function that stays.
    match unsafe { ffi::qd_port_watch(port, on_event) } {
        error if error < 0 => return Err(failed("asking it to tell of changes", error)),
        _ => {}
    }
    // SAFETY: a number only.
    config.mtu = u32::try_from(unsafe { ffi::qd_port_mtu(port) }).unwrap_or(1500);
    Ok(Setup { info, config })
}
