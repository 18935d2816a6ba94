//! What the kernel says about one of its network devices, asked through a socket of the right network namespace.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::stamped::{Abilities, Setting};
use crate::sys;

/// Longest name of a device, bytes.
pub const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// Link-layer type of Ethernet (`ARPHRD_ETHER`).
pub(crate) const ETHERNET: u16 = libc::ARPHRD_ETHER;

/// A device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetDevice {
    /// The kernel's index; a device that was deleted and made again has another.
    pub index: u32,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Hardware address, for devices that have one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// `ARPHRD_…`.
    pub link_type: u16,
    /// Administratively up.
    pub up: bool,
    /// The link carries.
    pub carrier: bool,
    /// Bits a second, where the device says.
    pub speed: Option<u64>,
}

/// Memory node of a device of the router's namespace, where it belongs to one.
pub(crate) fn numa(name: &str) -> Option<usize> {
    // -1 where the device belongs to no node, and no file for devices without hardware.
    let path = format!("/sys/class/net/{name}/device/numa_node");
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Asks about devices of the network namespace in which it was opened, from whatever thread.
#[derive(Debug)]
pub struct NetDevices {
    socket: OwnedFd,
}

impl NetDevices {
    /// Of the calling thread's network namespace.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)? })
    }

    /// Of the namespace of a socket that somebody else has opened.
    pub(crate) fn of(socket: OwnedFd) -> Self {
        Self { socket }
    }

    /// The same socket once more, for another process.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    /// What the device is now.
    ///
    /// # Errors
    /// `ENODEV` where there is none of that name.
    pub fn get(&self, name: &str) -> io::Result<NetDevice> {
        let mut request = request(name)?;
        self.ioctl(libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: a successful SIOCGIFINDEX has filled this member.
        let index = unsafe { request.ifr_ifru.ifru_ifindex } as u32;
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: a successful SIOCGIFMTU has filled this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu } as u32;
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: a successful SIOCGIFHWADDR has filled this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let link_type = address.sa_family;
        let mac = (link_type == ETHERNET).then(|| std::array::from_fn(|i| address.sa_data[i] as u8));
        let flags = self.flags(name)?;
        let is = |flag: libc::c_int| libc::c_int::from(flags) & flag != 0;
        let carrier = is(libc::IFF_UP) && self.carries(name).unwrap_or(is(libc::IFF_RUNNING));
        Ok(NetDevice { index, mtu, mac, link_type, up: is(libc::IFF_UP), carrier, speed: self.speed(name) })
    }

    /// Takes a device up or down.
    ///
    /// # Errors
    /// `ENODEV`, or `EPERM` without CAP_NET_ADMIN.
    pub fn set_up(&self, name: &str, up: bool) -> io::Result<()> {
        let before = self.flags(name)?;
        let flag = libc::IFF_UP as libc::c_short;
        let after = if up { before | flag } else { before & !flag };
        if before == after {
            return Ok(());
        }
        let mut request = request(name)?;
        request.ifr_ifru.ifru_flags = after;
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    fn flags(&self, name: &str) -> io::Result<libc::c_short> {
        let mut request = request(name)?;
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: a successful SIOCGIFFLAGS has filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_flags })
    }

    /// Whether the link carries, asked of the device itself; none where its driver does not say.
    ///
    /// The kernel's flag `IFF_RUNNING` follows the link with up to a second of delay: a port that is opened right after its device
    /// came up would be without a link for that long.
    fn carries(&self, name: &str) -> Option<bool> {
        const ETHTOOL_GLINK: u32 = 0xa;
        let mut value = [ETHTOOL_GLINK, 0];
        self.ethtool(name, &mut value).ok()?;
        Some(value[1] != 0)
    }

    /// `struct ethtool_cmd` of linux/ethtool.h: the old form of the question, which every kernel and driver answers.
    fn speed(&self, name: &str) -> Option<u64> {
        const ETHTOOL_GSET: u32 = 1;
        const UNKNOWN: u32 = u32::MAX;
        let mut command = [0_u32; 11];
        command[0] = ETHTOOL_GSET;
        let mut request = request(name).ok()?;
        request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        self.ioctl(libc::SIOCETHTOOL, &mut request).ok()?;
        // Bytes 12-13 hold the low half of the speed, bytes 28-29 the high half.
        let half = |word: u32| u32::from(u16::from_ne_bytes([word.to_ne_bytes()[0], word.to_ne_bytes()[1]]));
        let megabits = half(command[3]) | half(command[7]) << 16;
        (megabits != 0 && megabits != UNKNOWN && megabits != 0xffff).then(|| u64::from(megabits) * 1_000_000)
    }

    /// Name of the kernel's driver of the device, such as `veth`; empty where the device does not say.
    pub fn driver(&self, name: &str) -> String {
        /// `struct ethtool_drvinfo`.
        #[repr(C)]
        struct DriverInfo {
            command: u32,
            driver: [u8; 32],
            rest: [u8; 160],
        }
        const _: () = assert!(size_of::<DriverInfo>() == 196);
        const ETHTOOL_GDRVINFO: u32 = 3;
        let mut info = DriverInfo { command: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        if self.ethtool(name, &mut info).is_err() {
            return String::new();
        }
        let text = info.driver.split(|b| *b == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// How many receive queues the device uses now; 1 where it does not say.
    pub fn rx_queues(&self, name: &str) -> u32 {
        const ETHTOOL_GCHANNELS: u32 = 0x3c;
        // `struct ethtool_channels`: the command, four maxima (rx, tx, other, combined), and the four as they are.
        let mut channels = [0_u32; 9];
        channels[0] = ETHTOOL_GCHANNELS;
        match self.ethtool(name, &mut channels) {
            Ok(()) => channels[5].saturating_add(channels[8]).max(1),
            Err(_) => 1,
        }
    }

    /// Has the device leave VLAN tags in the frames that it receives, where it can.
    ///
    /// # Errors
    /// The device cannot change that.
    pub fn keep_vlan_tags(&self, name: &str) -> io::Result<()> {
        const ETHTOOL_GFLAGS: u32 = 0x25;
        const ETHTOOL_SFLAGS: u32 = 0x26;
        const ETH_FLAG_RXVLAN: u32 = 1 << 8;
        let mut value = [ETHTOOL_GFLAGS, 0];
        self.ethtool(name, &mut value)?;
        if value[1] & ETH_FLAG_RXVLAN == 0 {
            return Ok(());
        }
        value = [ETHTOOL_SFLAGS, value[1] & !ETH_FLAG_RXVLAN];
        self.ethtool(name, &mut value)
    }

    /// Whether the device takes super-frames of TCP, to cut them or to hand them on.
    pub fn segments_tcp(&self, name: &str) -> bool {
        const ETHTOOL_GTSO: u32 = 0x1e;
        let mut value = [ETHTOOL_GTSO, 0];
        self.ethtool(name, &mut value).is_ok() && value[1] != 0
    }

    /// What the device's card says of its times.
    ///
    /// # Errors
    /// The driver does not know the question.
    pub(crate) fn abilities(&self, name: &str) -> io::Result<Abilities> {
        const ETHTOOL_GET_TS_INFO: u32 = 0x41;
        // `struct ethtool_ts_info`: the command, flags, clock, what is sent and three words more, what is received and three words more.
        let mut info = [0_u32; 11];
        info[0] = ETHTOOL_GET_TS_INFO;
        self.ethtool(name, &mut info)?;
        Ok(Abilities { flags: info[1], clock: info[2] as i32, tx: info[3], rx: info[7] })
    }

    /// Which times the device's card gives now.
    ///
    /// # Errors
    /// The driver does not say.
    pub(crate) fn timestamps(&self, name: &str) -> io::Result<Setting> {
        const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;
        let mut setting = Setting::default();
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = (&raw mut setting).cast();
        self.ioctl(SIOCGHWTSTAMP, &mut request)?;
        Ok(setting)
    }

    /// Has the device's card give other times.
    ///
    /// # Errors
    /// It cannot, or we may not.
    pub(crate) fn set_timestamps(&self, name: &str, mut setting: Setting) -> io::Result<()> {
        const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = (&raw mut setting).cast();
        self.ioctl(SIOCSHWTSTAMP, &mut request)
    }

    /// A question of ethtool's; `T` is the structure that belongs to the command in its first word.
    fn ethtool<T>(&self, name: &str, structure: &mut T) -> io::Result<()> {
        let mut request = request(name)?;
        request.ifr_ifru.ifru_data = std::ptr::from_mut(structure).cast();
        self.ioctl(libc::SIOCETHTOOL, &mut request)
    }

    fn ioctl(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: `request` is a whole ifreq for the call; where it carries a pointer, that points to live memory
        // of the size that the command asks for.
        sys::check(unsafe { libc::ioctl(self.socket.as_raw_fd(), what, std::ptr::from_mut(request)) }).map(drop)
    }
}

/// A request that names a device.
fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(|b| b == 0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    // SAFETY: ifreq is plain C data for which all zeroes is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_other_names_are_not() {
        let devices = NetDevices::open().unwrap();
        let lo = devices.get("lo").unwrap();
        assert_eq!(lo.link_type, libc::ARPHRD_LOOPBACK);
        assert_eq!(lo.mac, None);
        for name in ["", "no-such-dev", "a-name-that-is-far-too-long", "l\0o"] {
            let error = devices.get(name).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name:?}");
        }
    }
}
