//! Advertisements of other routers on their way to main: by value, in a bounded channel.

use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::{Receiver, Sender, bounded};
use quiver_graph::IfIndex;
use quiver_wire::Header;
use quiver_wire::ipv6::Ipv6Header;
use quiver_wire::ndp::{NdpOption, NdpOptions, PrefixInfo, RouterAdvertisement};

use crate::router::ProcessSignal;

/// Advertisements under way to main. Links have few routers, which send one in minutes.
const CHANNEL: usize = 128;
/// Prefixes taken from one advertisement; the rest is left out.
pub const PREFIXES: usize = 16;

/// What an advertisement says.
#[derive(Clone, Copy, Debug)]
pub struct Advert {
    pub interface: IfIndex,
    pub router: Ipv6Addr,
    /// The message's fixed part.
    pub message: RouterAdvertisement,
    prefixes: [PrefixInfo; PREFIXES],
    count: usize,
}

impl Advert {
    /// Reads a message that has passed the checks.
    pub fn read(interface: IfIndex, ip: &Ipv6Header, bytes: &[u8]) -> Option<Self> {
        let message = RouterAdvertisement::read(bytes)?;
        let (mut prefixes, mut count) = ([PrefixInfo::default(); PREFIXES], 0);
        for option in NdpOptions::of_message(bytes)?.flatten() {
            if let (NdpOption::Prefix(info), Some(place)) = (option, prefixes.get_mut(count)) {
                *place = info;
                count += 1;
            }
        }
        Some(Self { interface, router: Ipv6Addr::from_bits(ip.src.get()), message, prefixes, count })
    }

    /// Prefixes of the link.
    pub fn prefixes(&self) -> &[PrefixInfo] {
        self.prefixes.get(..self.count).unwrap_or_default()
    }

    /// The byte of flags as it was sent: managed, other, …, preference.
    pub const fn flags(&self) -> u8 {
        (self.message.icmp.rest.get() >> 16) as u8
    }
}

/// From nodes to main; both ends.
#[derive(Clone)]
pub struct Adverts {
    sender: Sender<Advert>,
    receiver: Receiver<Advert>,
    /// Whether anybody has ever asked for them.
    wanted: Arc<AtomicBool>,
    signal: ProcessSignal,
}

impl Adverts {
    pub fn new(signal: ProcessSignal) -> Self {
        let (sender, receiver) = bounded(CHANNEL);
        Self { sender, receiver, wanted: Arc::default(), signal }
    }

    /// From now on somebody wants them.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Tells main; `false` where the channel is full.
    pub fn tell(&self, advert: Advert) -> bool {
        if !self.wanted.load(Ordering::Relaxed) {
            return true;
        }
        let told = self.sender.try_send(advert).is_ok();
        self.signal.raise();
        told
    }

    /// At most so many; and whether there may be more.
    pub fn take(&self, most: usize) -> (Vec<Advert>, bool) {
        let taken: Vec<Advert> = self.receiver.try_iter().take(most).collect();
        let more = taken.len() == most;
        (taken, more)
    }
}
