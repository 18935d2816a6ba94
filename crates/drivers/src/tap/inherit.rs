//! A device that passes from one process to the next: the host's end stays as it is.

use std::io;
use std::os::fd::OwnedFd;

use super::host::{LinkChange, add_address, change_link};
use super::{Made, Tap, TapConfig};
use crate::netdev::{NetDevice, NetDevices};
use crate::rights::Rights;

/// Descriptors beside the queues: sockets for requests and for netlink.
const SOCKETS: usize = 2;

/// By what the next process asks for a device.
fn key(config: &TapConfig) -> String {
    // The first word is the kind of descriptors, which is the same.
    let tun = if config.tun { " tun" } else { "" };
    format!("tap {} {}{tun}", config.host_namespace.as_deref().unwrap_or("-"), config.host_name)
}

/// What the process before this one has of the device. A device that was to have another number of queues is made anew.
pub(super) fn take(config: &TapConfig, rights: &dyn Rights) -> Option<Made> {
    let mut queues = rights.inherited(&key(config))?;
    if queues.len() != config.rx_queues + SOCKETS {
        return None;
    }
    let (netlink, devices) = (queues.pop()?, NetDevices::of(queues.pop()?));
    // It may have been deleted meanwhile.
    let device = devices.get(&config.host_name).ok()?;
    Some((queues, devices, netlink, device))
}

/// The settings of a device that is taken over.
pub(super) fn as_it_is(config: TapConfig, device: &NetDevice) -> TapConfig {
    TapConfig { host_mac: device.mac.or(config.host_mac), host_mtu: Some(device.mtu), host_up: device.up, ..config }
}

impl Tap {
    /// What the device is made of, for the next process.
    pub(super) fn as_inheritance(&self) -> io::Result<(String, Vec<OwnedFd>)> {
        let mut fds = self.queues.iter().map(|queue| queue.try_clone()).collect::<io::Result<Vec<_>>>()?;
        fds.push(self.devices.try_clone()?);
        fds.push(self.netlink.try_clone()?);
        Ok((key(&self.config), fds))
    }

    /// The process before this one has stopped. The host's end gets what it is to have and does not have yet; where nothing differs
    /// nobody notices.
    pub(super) fn end_hold(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.held) {
            return Ok(());
        }
        let device = self.devices.get(&self.config.host_name)?;
        let config = &self.config;
        let change = LinkChange {
            mac: config.host_mac.filter(|mac| device.mac != Some(*mac)),
            mtu: config.host_mtu.filter(|mtu| device.mtu != *mtu),
            up: Some(config.host_up).filter(|up| device.up != *up),
            ..LinkChange::default()
        };
        if change.mac.is_some() || change.mtu.is_some() || change.up.is_some() {
            change_link(&self.netlink, device.index, change)?;
        }
        for address in &config.host_addresses {
            match add_address(&self.netlink, device.index, *address, false) {
                Err(error) if error.raw_os_error() != Some(libc::EEXIST) => return Err(error),
                _ => {}
            }
        }
        self.device = Some(device);
        self.set_carrier(self.up)
    }
}
