//! Packet sockets with their ring: opened on the control side, used by one worker each.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use super::ring::{Direction, RX_OVERHEAD, Ring, Shape, TX_DATA, arrival};
use super::{AfPacketConfig, Mode};
use crate::netdev::NetDevice;
use crate::sys;
use crate::virtio_net::VnetHeader;

/// Super-frames wait in the socket's queue, by reference: so many bytes of them, as the kernel counts.
const RX_QUEUE_BYTES: libc::c_int = 32 << 20;
/// Bytes on their way through the device.
const TX_QUEUE_BYTES: libc::c_int = 16 << 20;
/// Ethernet header and two tags.
const LINK_BYTES: usize = 14 + 8;
/// Larger received frames come through the socket's queue.
const RX_SLOT_MAX: usize = 10 << 10;
/// Larger frames are sent one by one.
const TX_SLOT_MAX: usize = 10 << 10;

/// A socket that receives.
#[derive(Debug)]
pub(super) struct RxSocket {
    // Field order is drop order: the mapping goes before the socket that it belongs to.
    pub ring: Ring,
    pub fd: Arc<OwnedFd>,
    /// Whether the kernel leaves out what this machine sends.
    pub skips_outgoing: bool,
}

/// A socket that sends.
#[derive(Debug)]
pub(super) struct TxSocket {
    pub ring: Ring,
    pub fd: OwnedFd,
    /// Without a ring, for frames larger than a slot: with one, a socket sends nothing but slots.
    pub alone: OwnedFd,
    /// Whether unfinished checksums may be left to the kernel.
    pub leaves_checksums: bool,
}

fn option(fd: &OwnedFd, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_PACKET, name, &value)
}

/// A packet socket for TPACKET_V2 rings with vnet headers. It receives nothing before it is bound to a protocol.
fn open() -> io::Result<OwnedFd> {
    let fd = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    option(&fd, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    Ok(fd)
}

/// All receive sockets of a device, sharing its flows where there are several.
pub(super) fn open_rx(config: &AfPacketConfig, device: &NetDevice) -> io::Result<Vec<RxSocket>> {
    let mut group = None;
    let mut sockets = Vec::new();
    for _ in 0..config.rx_queues {
        let socket = open_one_rx(config, device)?;
        if config.rx_queues > 1 {
            group = Some(join_fanout(&socket.fd, group)?);
        }
        sockets.push(socket);
    }
    if config.rx_queues > 1 {
        // Between bind and joining a socket got everything, and so did the others: those frames are copies.
        sockets.iter_mut().for_each(RxSocket::discard);
    }
    Ok(sockets)
}

fn open_one_rx(config: &AfPacketConfig, device: &NetDevice) -> io::Result<RxSocket> {
    let fd = open()?;
    option(&fd, libc::PACKET_VNET_HDR, 1)?;
    // What does not fit into a slot is queued whole beside its cut copy.
    option(&fd, libc::PACKET_COPY_THRESH, 1)?;
    let skips_outgoing = option(&fd, libc::PACKET_IGNORE_OUTGOING, 1).is_ok();
    sys::set_queue_bytes(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RX_QUEUE_BYTES)?;
    let frame = config.rx_frame.unwrap_or(device.mtu as usize + LINK_BYTES).min(RX_SLOT_MAX.max(config.rx_frame.unwrap_or(0)));
    let ring = Ring::new(&fd, Direction::Rx, Shape::new(frame + RX_OVERHEAD, config.rx_size, config.rx_per_block))?;
    sys::bind_packet(&fd, libc::ETH_P_ALL, device.index)?;
    if config.mode == Mode::Ethernet {
        // The interface has an address of its own, so the device must let other addresses' frames through.
        let promiscuous = libc::packet_mreq {
            mr_ifindex: device.index as libc::c_int,
            mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set_option(&fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &promiscuous)?;
    }
    Ok(RxSocket { ring, fd: Arc::new(fd), skips_outgoing })
}

/// Joins `group`, or founds one with a number that is free; gives the number.
fn join_fanout(fd: &OwnedFd, group: Option<u16>) -> io::Result<u16> {
    let kind = match group {
        Some(_) => libc::PACKET_FANOUT_HASH,
        None => libc::PACKET_FANOUT_HASH | libc::PACKET_FANOUT_FLAG_UNIQUEID,
    };
    let word = libc::c_uint::from(group.unwrap_or(0)) | kind << 16;
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT, &word)?;
    // SAFETY: any bits are an integer.
    let word: libc::c_uint = unsafe { sys::get_option(fd, libc::SOL_PACKET, libc::PACKET_FANOUT)? };
    Ok(word as u16)
}

impl RxSocket {
    /// Throws away what waits.
    pub(super) fn discard(&mut self) {
        self.discard_before(u64::MAX);
    }

    /// Throws away what waits and arrived before `since`, ns of the wall clock.
    pub(super) fn discard_before(&mut self, since: u64) {
        // At most one round: what arrives meanwhile may stay.
        for _ in 0..self.ring.shape().slots {
            let status = self.ring.status();
            // SAFETY: the status says that the slot is ours; it is only looked at where it is.
            if status & libc::TP_STATUS_USER == 0 || arrival(unsafe { self.ring.slot() }) >= since {
                break;
            }
            if status & libc::TP_STATUS_COPY != 0 {
                self.drop_copy();
            }
            self.release();
        }
        let _ = self.lost();
    }

    /// Gives the current slot back and goes on to the next.
    #[inline(always)]
    pub(super) fn release(&mut self) {
        self.ring.set_status(libc::TP_STATUS_KERNEL);
        self.ring.advance();
    }

    /// Frames that the kernel had no room for since the last question.
    pub(super) fn lost(&self) -> u64 {
        // SAFETY: tpacket_stats is two integers.
        let stats = unsafe { sys::get_option::<[libc::c_uint; 2]>(&self.fd, libc::SOL_PACKET, libc::PACKET_STATISTICS) };
        stats.map_or(0, |[_, drops]| u64::from(drops))
    }

    /// Takes the whole frame that waits in the queue; gives header and bytes.
    pub(super) fn take_copy(&self, into: &mut [u8]) -> Option<(VnetHeader, usize)> {
        let mut header = [0_u8; VnetHeader::LEN];
        let mut parts = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: VnetHeader::LEN },
            libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() },
        ];
        // SAFETY: msghdr is plain C data for which all zeroes is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len() as _;
        // SAFETY: `message` names two live, exclusively borrowed byte runs with their true lengths.
        let got = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let got = usize::try_from(got).ok()?.checked_sub(VnetHeader::LEN)?;
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        Some((VnetHeader::parse(&header)?, got))
    }

    /// Throws the first frame of the queue away.
    pub(super) fn drop_copy(&self) {
        // SAFETY: an empty buffer; the kernel writes nothing and takes the frame out.
        let _ = unsafe { libc::recv(self.fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT | libc::MSG_TRUNC) };
    }
}

/// A socket that sends for one thread.
pub(super) fn open_tx(config: &AfPacketConfig, device: &NetDevice) -> io::Result<TxSocket> {
    let (fd, alone) = (open_sending(config)?, open_sending(config)?);
    let frame = (device.mtu as usize + LINK_BYTES).min(TX_SLOT_MAX);
    let bytes = TX_DATA + VnetHeader::LEN + frame;
    let ring = Ring::new(&fd, Direction::Tx, Shape::new(bytes, config.tx_size, config.tx_per_block))?;
    // Protocol 0: nothing is received.
    sys::bind_packet(&fd, 0, device.index)?;
    sys::bind_packet(&alone, 0, device.index)?;
    Ok(TxSocket { ring, fd, alone, leaves_checksums: config.cksum_gso })
}

fn open_sending(config: &AfPacketConfig) -> io::Result<OwnedFd> {
    let fd = open()?;
    option(&fd, libc::PACKET_VNET_HDR, 1)?;
    if config.qdisc_bypass {
        option(&fd, libc::PACKET_QDISC_BYPASS, 1)?;
    }
    sys::set_queue_bytes(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, TX_QUEUE_BYTES)?;
    Ok(fd)
}
