//! TAP: a network device of the host's kernel whose other end is an interface of the router.
//!
//! ```text
//!   host's stack ── tap0 (kernel) ══ queue i ══► TapRx (worker) ── graph
//!                                  ◄═════════ TapTx (thread i, by turns)
//! ```
//!
//! **Offloads.** Each frame has a virtio header. Without `gso` the kernel finishes checksums and cuts super-frames before it
//! hands them over; with it, that is done here ([`crate::virtio_net`]), and TCP between host and router gets through with far
//! fewer system calls. Unfinished checksums are passed on to the kernel in either case.
//!
//! **The host's end** is made, configured and put into its namespace by [`Tap::open`], and goes with the last descriptor: with
//! the interface, or with the process however it ends, unless `persist` says otherwise. Its carrier follows the interface's
//! administrative state. When somebody deletes it, it is made again. A process that takes over from another one gets its descriptors:
//! the host sees neither the end nor a lost carrier.
//!
//! Towards the host, segments of one TCP connection that follow one another are joined again into super-frames, up to 64 kB a system call.
//!
//! **Limits.** A system call for each frame or super-frame: this is a way to the host, not a fast one. What happens to the device in another
//! namespace is noticed only by what sending says.
//!
//! **TUN.** With `tun` the device and the interface carry IP packets without Ethernet headers. Neither end has a link address.

mod error;
mod host;
mod inherit;
mod queue;

use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use quiver_graph::{Link, Port, PortState, RxQueue, TxQueue};
use quiver_wire::MacAddr;

pub use error::TapError;
pub use host::{HostAddress, HostChange};

use crate::closer::{self, Later};
use crate::ethernet::{FrameLimit, default_mac};
use crate::mailbox::Mailbox;
use crate::netdev::{NAME_MAX, NetDevice, NetDevices};
use crate::rights::{NamespaceFds, QUEUES_MAX as RIGHTS_QUEUES_MAX, Rights};
use crate::sys;
use crate::virtio_net::{LinkLayer, VnetHeader};
use host::{LinkChange, add_address, add_default_route, change_link, remove_address};
use queue::{Queue, TapRx, TapTx};

/// Largest number of frames that wait for us.
const RING_MAX: usize = 1 << 15;
/// Largest number of queues.
const QUEUES_MAX: usize = RIGHTS_QUEUES_MAX as usize;
/// How long descriptors of ours that are being closed may keep a device.
const SETTLE: Duration = Duration::from_secs(2);
/// How often an own device of the same name that is on its way out is waited for, and how long each time.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// How to make a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Name of the host's end.
    pub host_name: String,
    /// Hardware address of the interface; drawn at random for `None`.
    pub mac: Option<[u8; 6]>,
    /// Queues.
    pub rx_queues: usize,
    /// Frames that may wait for us; the kernel's usual number for `None`.
    pub rx_size: Option<usize>,
    /// Network namespace of the host's end: a name, `pid:<n>` or a path.
    pub host_namespace: Option<String>,
    /// Hardware address of the host's end.
    pub host_mac: Option<[u8; 6]>,
    /// MTU of the host's end.
    pub host_mtu: Option<u32>,
    /// The host's end is up from the start.
    pub host_up: bool,
    /// Bridge of the host that its end joins.
    pub host_bridge: Option<String>,
    /// Addresses of the host's end.
    pub host_addresses: Vec<HostAddress>,
    /// Default gateways of the host.
    pub host_gateways: Vec<IpAddr>,
    /// The kernel may hand over super-frames and unfinished checksums.
    pub gso: bool,
    /// The kernel may hand over unfinished checksums.
    pub checksum_offload: bool,
    /// The device stays when the interface goes.
    pub persist: bool,
    /// The device is there already.
    pub attach: bool,
    /// IP packets without Ethernet headers: a TUN device.
    pub tun: bool,
}

impl TapConfig {
    /// The usual settings.
    pub fn new(host_name: impl Into<String>) -> Self {
        Self {
            host_name: host_name.into(),
            mac: None,
            rx_queues: 1,
            rx_size: None,
            host_namespace: None,
            host_mac: None,
            host_mtu: None,
            host_up: true,
            host_bridge: None,
            host_addresses: Vec::new(),
            host_gateways: Vec::new(),
            gso: false,
            checksum_offload: false,
            persist: false,
            attach: false,
            tun: false,
        }
    }

    fn called(&self) -> &'static str {
        if self.tun { "TUN" } else { "TAP" }
    }

    fn link(&self) -> LinkLayer {
        if self.tun { LinkLayer::Ip } else { LinkLayer::Ethernet }
    }

    fn check(&self) -> Result<(), TapError> {
        let wrong = |key, value: String, expected: &str| Err(TapError::Value { key, value, expected: expected.to_owned() });
        let name = self.host_name.as_str();
        if name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || name.contains(['/', ':', '%', '\0', ' ']) {
            return wrong("host-if-name", name.to_owned(), "1 to 15 bytes without `/', `:', `%' and blanks");
        }
        if !(1..=QUEUES_MAX).contains(&self.rx_queues) {
            return wrong("num-rx-queues", self.rx_queues.to_string(), "1 to 64");
        }
        if let Some(size) = self.rx_size.filter(|s| !(64..=RING_MAX).contains(s)) {
            return wrong("rx-ring-size", size.to_string(), "64 to 32768");
        }
        if let Some(mtu) = self.host_mtu.filter(|m| !(68..=65_521).contains(m)) {
            return wrong("host-mtu-size", mtu.to_string(), "68 to 65521");
        }
        if self.tun {
            // Neither the device nor the interface has a link address, and bridges are of Ethernet.
            for (key, value) in [("hw-addr", self.mac), ("host-mac-addr", self.host_mac)] {
                if let Some(mac) = value {
                    return wrong(key, MacAddr(mac).to_string(), "none: a TUN device has no link addresses");
                }
            }
            if let Some(bridge) = &self.host_bridge {
                return wrong("host-bridge", bridge.clone(), "none: a TUN device cannot join a bridge");
            }
        }
        for a in &self.host_addresses {
            let most = if a.address.is_ipv4() { 32 } else { 128 };
            if a.prefix_len > most {
                return wrong("host address", format!("{}/{}", a.address, a.prefix_len), &format!("a prefix length up to {most}"));
            }
        }
        Ok(())
    }
}

/// What control side and queues share about the device.
#[derive(Debug)]
pub(super) struct DeviceState {
    mtu: AtomicU32,
    /// The host takes super-frames.
    gso: bool,
    /// What frames begin with.
    link: LinkLayer,
}

impl DeviceState {
    #[inline(always)]
    fn frame_limit(&self) -> FrameLimit {
        FrameLimit::of_mtu(self.mtu.load(Ordering::Relaxed), self.link)
    }
}

/// A TAP interface, on the control side.
pub struct Tap {
    config: TapConfig,
    rights: Arc<dyn Rights>,
    devices: NetDevices,
    /// For requests about the host's end.
    netlink: OwnedFd,
    /// The host's end as last seen; `None`: gone.
    device: Option<NetDevice>,
    bound: u32,
    /// A TUN device has none: only its link-local IPv6 address follows from this.
    mac: [u8; 6],
    state: Arc<DeviceState>,
    queues: Vec<Queue>,
    /// The receivers have been taken.
    taken: bool,
    up: bool,
    rx: Vec<Arc<Mailbox<Queue>>>,
    tx: Vec<(usize, Arc<Mailbox<Queue>>)>,
    /// Another process still has the device: nothing is changed there until it has stopped.
    held: bool,
}

/// What making a device gives.
type Made = (Vec<OwnedFd>, NetDevices, OwnedFd, NetDevice);

impl Tap {
    /// Makes a device, or attaches to one, and configures the host's end. Another namespace is entered by `rights`. The kernel takes
    /// its time for many queues, and a device of ours of that name that is on its way out is waited for: not for the main thread.
    ///
    /// # Errors
    /// Settings out of range, no permission, a device of that name; then there is no new device.
    pub fn open(config: TapConfig, rights: Arc<dyn Rights>) -> Result<Self, TapError> {
        closer::start();
        config.check()?;
        let name = config.host_name.as_str();
        let mac = match config.mac {
            Some(mac) => mac,
            None => default_mac("tap", &format!("{} {name}", config.host_namespace.as_deref().unwrap_or_default()), None)
                .map_err(|e| TapError::of("drawing an address for", name, e))?,
        };
        let inherited = inherit::take(&config, &*rights);
        let held = inherited.is_some();
        let (queues, devices, netlink, device) = match inherited {
            Some(made) => made,
            None => make_patiently(&config, &*rights)?,
        };
        if held {
            rights.note(format!("TAP device {name}"), Ok(()));
        } else {
            // The interface starts down.
            let _ = control_pointer(&queues[0], libc::TUNSETCARRIER, 0);
        }
        // What is taken over stays as it is, unless somebody says otherwise from here on.
        let config = if held { inherit::as_it_is(config, &device) } else { config };
        Ok(Self {
            rx: queues.iter().map(|_| Arc::new(Mailbox::new())).collect(),
            queues: queues.into_iter().map(|fd| Arc::new(Later::new(fd))).collect(),
            state: Arc::new(DeviceState { mtu: AtomicU32::new(device.mtu), gso: config.gso, link: config.link() }),
            bound: device.index,
            device: Some(device),
            config,
            rights,
            devices,
            netlink,
            mac,
            taken: false,
            up: false,
            tx: Vec::new(),
            held,
        })
    }

    /// How it was made.
    pub fn config(&self) -> &TapConfig {
        &self.config
    }

    /// The host's end as last seen; `None` while it is gone.
    pub fn device(&self) -> Option<&NetDevice> {
        self.device.as_ref()
    }

    /// Changes the host's end. It is so again when it has been deleted and is made anew.
    ///
    /// # Errors
    /// What the kernel says, as when the host's end is gone.
    pub fn set_host(&mut self, change: HostChange) -> Result<(), TapError> {
        let HostChange { mac, mtu, up } = change;
        let config = &mut self.config;
        (config.host_mac, config.host_mtu) = (mac.or(config.host_mac), mtu.or(config.host_mtu));
        config.host_up = up.unwrap_or(config.host_up);
        self.config.check()?;
        if self.held {
            return Ok(());
        }
        let change = LinkChange { mac, mtu, up, ..LinkChange::default() };
        change_link(&self.netlink, self.bound, change).map_err(|e| TapError::of("configuring", &self.config.host_name, e))
    }

    /// Gives the host's end an address, or takes it away; one that it has already, or does not have, is no mistake.
    ///
    /// # Errors
    /// What the kernel says, as when the host's end is gone.
    pub fn set_host_address(&mut self, address: HostAddress, add: bool) -> Result<(), TapError> {
        self.config.host_addresses.retain(|known| *known != address);
        if add {
            self.config.host_addresses.push(address);
        }
        if self.held {
            return Ok(());
        }
        let done = if add {
            add_address(&self.netlink, self.bound, address, false)
        } else {
            remove_address(&self.netlink, self.bound, address)
        };
        match done.map_err(|e| (e.raw_os_error(), e)) {
            Err((Some(libc::EEXIST | libc::EADDRNOTAVAIL), _)) | Ok(()) => Ok(()),
            Err((_, e)) => Err(TapError::of("setting an address of", &self.config.host_name, e)),
        }
    }

    /// Makes the device anew. Where there is another one of its name, the next look at the device tries again.
    fn reopen(&mut self) -> io::Result<()> {
        let (queues, devices, netlink, device) = make(&self.config, &*self.rights)?;
        // From here on nothing fails.
        self.queues = queues.into_iter().map(|fd| Arc::new(Later::new(fd))).collect();
        if self.taken {
            self.rx.iter().zip(&self.queues).for_each(|(mailbox, queue)| mailbox.send(queue.clone()));
        }
        for (number, mailbox) in &self.tx {
            mailbox.send(self.queues[*number].clone());
        }
        (self.devices, self.netlink) = (devices, netlink);
        self.bound = device.index;
        self.device = Some(device);
        self.set_carrier(self.up)
    }

    fn set_carrier(&self, on: bool) -> io::Result<()> {
        let Some(queue) = self.queues.first() else { return Ok(()) };
        match control_pointer(queue, libc::TUNSETCARRIER, c_int::from(on)) {
            // Kernels before 5.0 have no such thing.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            done => done?,
        };
        if !on {
            // The kernel announces lost carriers once a second, and takes routes out then; another state of operation it announces at once,
            // with the carrier in it. Where that fails, as where the device is gone, its own announcement comes.
            let _ = change_link(&self.netlink, self.bound, LinkChange { dormant: true, ..LinkChange::default() });
        }
        Ok(())
    }
}

/// [`make`]; while a device of this name is on its way out, once more after a moment.
fn make_patiently(config: &TapConfig, rights: &dyn Rights) -> Result<Made, TapError> {
    for _ in 0..TRIES {
        match make(config, rights) {
            Err(TapError::Exists(_)) => {
                closer::settle(SETTLE);
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
    make(config, rights)
}

fn make(config: &TapConfig, rights: &dyn Rights) -> Result<Made, TapError> {
    let name = config.host_name.as_str();
    let queues = config.rx_queues as u32;
    let Some(namespace) = config.host_namespace.as_deref() else {
        return make_with(config, NamespaceFds::here(queues).map_err(TapError::NoTun)?);
    };
    let opened = rights.namespace(namespace, queues).map_err(|error| match error.raw_os_error() {
        // Whoever was asked cannot.
        None => TapError::of("entering the namespace for", name, error),
        Some(libc::EPERM) => TapError::Namespace(namespace.to_owned()),
        Some(_) => TapError::Value {
            key: "host-ns",
            value: namespace.to_owned(),
            expected: format!("a network namespace by name, pid:<n> or path ({error})"),
        },
    })?;
    make_with(config, opened)
}

/// Makes the device in the namespace of these descriptors.
fn make_with(config: &TapConfig, fds: NamespaceFds) -> Result<Made, TapError> {
    let name = config.host_name.as_str();
    let failed = |what| move |error| TapError::of(what, name, error);
    let NamespaceFds { devices, netlink, queues, .. } = fds;
    let devices = NetDevices::of(devices);
    if config.attach && devices.get(name).is_err() {
        return Err(TapError::NoDevice(name.to_owned()));
    }
    for (number, queue) in queues.iter().enumerate() {
        bind_queue(config, number, queue)?;
    }
    let device = devices.get(name).map_err(failed("asking for"))?;
    let master = match &config.host_bridge {
        None => None,
        Some(bridge) => Some(devices.get(bridge).map_err(|e| TapError::of("looking for the bridge", bridge, e))?.index),
    };
    let change = LinkChange {
        mac: config.host_mac,
        mtu: config.host_mtu,
        queue_length: config.rx_size.map(|s| s as u32),
        master,
        up: Some(config.host_up),
        ..LinkChange::default()
    };
    if config.tun && !config.attach {
        // Before the device is up, when the kernel would make one. Where it does not do IPv6 it makes none.
        let _ = change_link(&netlink, device.index, LinkChange { no_link_local: true, ..LinkChange::default() });
    }
    change_link(&netlink, device.index, change).map_err(failed("configuring"))?;
    for address in &config.host_addresses {
        add_address(&netlink, device.index, *address, true).map_err(failed("setting an address of"))?;
    }
    for gateway in &config.host_gateways {
        add_default_route(&netlink, device.index, *gateway).map_err(failed("setting the default route over"))?;
    }
    if config.persist {
        control(&queues[0], libc::TUNSETPERSIST, 1).map_err(failed("making persistent"))?;
    }
    let device = devices.get(name).map_err(failed("asking for"))?;
    Ok((queues, devices, netlink, device))
}

/// Makes a descriptor of `/dev/net/tun` a queue of the device.
fn bind_queue(config: &TapConfig, number: usize, fd: &OwnedFd) -> Result<(), TapError> {
    let name = config.host_name.as_str();
    let failed = |what| move |error| TapError::of(what, name, error);
    let mut flags = (if config.tun { libc::IFF_TUN } else { libc::IFF_TAP }) | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    if config.rx_queues > 1 {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if number == 0 && !config.attach {
        flags |= libc::IFF_TUN_EXCL;
    }
    // SAFETY: ifreq is plain C data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF takes an ifreq, which lives over the call.
    let made = sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) });
    made.map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => TapError::Exists(name.to_owned()),
        Some(libc::EINVAL) if config.attach => TapError::Value {
            key: "attach",
            value: name.to_owned(),
            expected: format!("a {} device with as many queues (one, or several) as asked for", config.called()),
        },
        _ => TapError::of(if config.tun { "making the TUN device" } else { "making the TAP device" }, name, error),
    })?;
    let mut offloads = 0;
    if config.gso || config.checksum_offload {
        offloads |= libc::TUN_F_CSUM;
    }
    if config.gso {
        offloads |= libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    }
    // SAFETY: TUNSETOFFLOAD takes its value in place of a pointer.
    let set = sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads)) });
    set.map_err(failed("setting offloads of"))?;
    control_pointer(fd, libc::TUNSETVNETHDRSZ, VnetHeader::LEN as c_int).map_err(failed("setting the header size of"))
}

/// A request whose argument is the value itself.
fn control(fd: &OwnedFd, what: libc::Ioctl, value: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the request takes an integer.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), what, value) }).map(drop)
}

/// A request whose argument points to an int.
fn control_pointer(fd: &OwnedFd, what: libc::Ioctl, value: c_int) -> io::Result<()> {
    // SAFETY: the request reads one int, which lives over the call.
    sys::check(unsafe { libc::ioctl(fd.as_raw_fd(), what, &raw const value) }).map(drop)
}

impl Port for Tap {
    fn input_node(&self) -> &'static str {
        "tap-input"
    }

    fn take_rx(&mut self) -> io::Result<Vec<Box<dyn RxQueue>>> {
        self.taken = true;
        let queues = self.queues.iter().zip(&self.rx);
        Ok(queues
            .map(|(queue, mailbox)| {
                Box::new(TapRx::new(queue.clone(), mailbox.clone(), self.config.link(), self.held)) as Box<dyn RxQueue>
            })
            .collect())
    }

    fn open_tx(&mut self, thread: usize) -> io::Result<Box<dyn TxQueue>> {
        let number = thread % self.queues.len();
        let mailbox = Arc::new(Mailbox::new());
        self.tx.push((number, mailbox.clone()));
        Ok(Box::new(TapTx::new(self.queues[number].clone(), mailbox, self.state.clone())))
    }

    fn link(&mut self) -> Link {
        // The carrier that the host sees is our own doing; the link is there while the host's end is up.
        Link { up: self.devices.get(&self.config.host_name).is_ok_and(|d| d.up), speed: None }
    }

    fn mac(&self) -> Option<[u8; 6]> {
        (!self.config.tun).then_some(self.mac)
    }

    fn identity(&self) -> [u8; 6] {
        self.mac
    }

    fn max_frame(&self) -> usize {
        self.state.frame_limit().plain
    }

    fn refresh(&mut self) -> io::Result<PortState> {
        self.rx.iter().for_each(|m| m.collect());
        self.tx.iter().for_each(|(_, m)| m.collect());
        // A queue that was closed leaves its mailbox to us alone.
        self.tx.retain(|(_, m)| Arc::strong_count(m) > 1);
        self.device = self.devices.get(&self.config.host_name).ok();
        let reopened = !self.held && self.device.is_none_or(|d| d.index != self.bound);
        if reopened {
            self.reopen()?;
        }
        if let Some(device) = self.device {
            self.state.mtu.store(device.mtu, Ordering::Relaxed);
        }
        let link = self.link();
        Ok(PortState { present: self.device.is_some(), link, mac: self.mac(), max_frame: self.max_frame(), reopened })
    }

    fn set_up(&mut self, up: bool) -> io::Result<()> {
        self.up = up;
        if self.held { Ok(()) } else { self.set_carrier(up) }
    }

    fn descriptors(&self) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
        self.as_inheritance().map(Some)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.end_hold()
    }

    fn describe(&self) -> Vec<String> {
        let c = &self.config;
        let mut lines = vec![format!("host device {} in {}", c.host_name, c.host_namespace.as_deref().unwrap_or("this namespace"))];
        lines.push(match &self.device {
            None => "device is gone".to_owned(),
            Some(d) => format!("index {} mtu {} {}", d.index, d.mtu, if d.up { "up" } else { "down" }),
        });
        lines.push(format!("queues {}, gso {}, persistent {}", c.rx_queues, c.gso, c.persist));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let base = TapConfig::new("tap0");
        let too_long = HostAddress { address: [10, 0, 0, 1].into(), prefix_len: 33 };
        for (config, expected) in [
            (TapConfig::new("a-name-that-is-too-long"), "host-if-name"),
            (TapConfig::new("a/b"), "host-if-name a/b"),
            (TapConfig { rx_queues: 0, ..base.clone() }, "num-rx-queues 0"),
            (TapConfig { rx_queues: 65, ..base.clone() }, "num-rx-queues 65"),
            (TapConfig { rx_size: Some(63), ..base.clone() }, "rx-ring-size 63"),
            (TapConfig { host_mtu: Some(67), ..base.clone() }, "host-mtu-size 67"),
            (TapConfig { host_addresses: vec![too_long], ..base.clone() }, "10.0.0.1/33"),
            (TapConfig { tun: true, mac: Some([2; 6]), ..base.clone() }, "hw-addr 02:02:02:02:02:02"),
            (TapConfig { tun: true, host_mac: Some([2; 6]), ..base.clone() }, "host-mac-addr 02:02:02:02:02:02"),
            (TapConfig { tun: true, host_bridge: Some("br0".into()), ..base.clone() }, "host-bridge br0"),
            (TapConfig { host_namespace: Some("no-such-namespace".into()), ..base.clone() }, "host-ns no-such-namespace"),
        ] {
            let Err(error) = Tap::open(config, Arc::new(crate::rights::Direct)) else { panic!("{expected}: was made") };
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
