//! `ip4-frag` and `ip6-frag`: packets that are longer than the next link takes.
//!
//! ```text
//!  ip4-rewrite ──► ip4-frag ──┐      aux = adjacency, kept; the fragments fit
//!      ▲                      │
//!      └──────────────────────┘
//! ```
//!
//! IPv4 packets are cut by any router unless they forbid it (RFC 791, 3.2); IPv6 packets only by their source (RFC 8200, 4.5),
//! so `ip6-frag` sees what this router sends itself. The first fragment keeps the packet's buffer and its trace; for the
//! others new buffers are taken, all or none.

use std::marker::PhantomData;
use std::ops::Range;

use quiver_graph::{NoNext, Node, NodeCx, NodeSpec, Packet, Pkt, Verdict, drop_reasons, flags};
use quiver_wire::checksum::fill_l4;
use quiver_wire::fragment::{FragmentError, Ipv4Fragments, Ipv6Fragments};

use crate::Router;
use crate::data::DataPlane;
use crate::ip::{V4, V6};
use crate::local::header::{Behind, LocalFamily, node_name, trace};

drop_reasons! {
    /// Why packets are not cut, and how many were.
    pub enum Drop {
        /// A packet that was larger than the MTU was cut into fragments.
        Fragmented = "packet fragmented" (info),
        /// A fragment was sent.
        Sent = "number of sent fragments" (info),
        /// The packet is larger than the MTU and must not be cut; its sender gets an ICMP error.
        ///
        /// Causes: the next link has a smaller MTU, a tunnel among others, and the sender does path MTU discovery. It is normal in
        /// small numbers; it is a black hole where the ICMP error is filtered on its way to the sender.
        /// Check: `show interface` for the MTU, `ping DESTINATION size N` for what passes; let ICMP pass, or lower the MTU at the
        /// sender.
        /// See: `show interface`, `set interface mtu`, `set ip pmtu`.
        DontFragment = "can't fragment this packet",
        /// The headers that each fragment would need are larger than the MTU allows.
        Header = "can't fragment header",
        /// The headers do not agree with the packet's length.
        Malformed = "malformed packet",
        /// No packet buffer was free for a fragment.
        ///
        /// Causes: the buffer pool is exhausted.
        /// Check: `show buffers`: raise `buffers { buffers-per-numa N }` in startup.conf.
        /// See: `show buffers`, `/buffer-pools/<pool>/available`.
        Memory = "could not allocate buffer",
    }
}

impl From<FragmentError> for Drop {
    fn from(error: FragmentError) -> Self {
        match error {
            FragmentError::DontFragment => Self::DontFragment,
            FragmentError::MtuTooSmall => Self::Header,
            FragmentError::BadHeader | FragmentError::BadOption => Self::Malformed,
        }
    }
}

/// Most headers of a fragment: IPv4's 60 bytes, or IPv6's with extension headers as far as they fit a first segment.
const HEADERS_MAX: usize = 1024;

/// What differs between the families here.
trait Cut: LocalFamily {
    /// Plans the cutting of a whole packet: for each fragment, writes its headers to `headers` and calls `piece` with them and
    /// the place of its payload in the packet.
    fn plan(
        packet: &[u8],
        mtu: usize,
        id: u32,
        headers: &mut [u8],
        piece: impl FnMut(&[u8], Range<usize>) -> Result<(), Drop>,
    ) -> Result<(), Drop>;
}

impl Cut for V4 {
    fn plan(
        packet: &[u8],
        mtu: usize,
        _: u32,
        headers: &mut [u8],
        mut piece: impl FnMut(&[u8], Range<usize>) -> Result<(), Drop>,
    ) -> Result<(), Drop> {
        for fragment in Ipv4Fragments::new(packet, mtu)? {
            let len = fragment.write_header(headers).ok_or(Drop::Header)?;
            piece(&headers[..len], fragment.payload)?;
        }
        Ok(())
    }
}

impl Cut for V6 {
    fn plan(
        packet: &[u8],
        mtu: usize,
        id: u32,
        headers: &mut [u8],
        mut piece: impl FnMut(&[u8], Range<usize>) -> Result<(), Drop>,
    ) -> Result<(), Drop> {
        for fragment in Ipv6Fragments::new(packet, mtu, id)? {
            let len = fragment.write_header(headers).ok_or(Drop::Header)?;
            piece(&headers[..len], fragment.payload)?;
        }
        Ok(())
    }
}

/// The node.
struct Fragmenter<F> {
    data: DataPlane,
    /// The packet in one piece.
    whole: Vec<u8>,
    headers: Vec<u8>,
    /// Headers of the first fragment.
    first: Vec<u8>,
    /// Fragments after the first.
    rest: Vec<Packet>,
    /// Identification of the last packet (IPv6).
    id: u32,
    family: PhantomData<F>,
}

const TO_REWRITE: Verdict = Verdict::slot(1);

/// What a packet is cut in is each thread's own.
impl<F> Clone for Fragmenter<F> {
    fn clone(&self) -> Self {
        Self::new(self.data.clone())
    }
}

impl<F: Cut> Node for Fragmenter<F> {
    type Next = NoNext;
    type Drop = Drop;
    const CONSUMES: bool = true;

    fn start(&mut self, thread: usize) {
        self.id = (thread as u32).wrapping_mul(0x9e37_79b9);
    }

    fn packet(&mut self, cx: &mut NodeCx<'_>, packet: Pkt<'_>) -> Verdict {
        let (mut packet, verdict) = packet.take();
        match self.cut(cx, &mut packet) {
            Ok(()) => {
                cx.count(Drop::Fragmented, 1);
                cx.count(Drop::Sent, 1 + self.rest.len() as u64);
                cx.emit(TO_REWRITE, packet);
                self.rest.drain(..).for_each(|packet| cx.emit(TO_REWRITE, packet));
            }
            Err(reason) => {
                self.rest.drain(..).for_each(|packet| cx.free(packet));
                cx.drop_packet(packet, reason);
            }
        }
        verdict
    }
}

impl<F> Fragmenter<F> {
    fn new(data: DataPlane) -> Self {
        let headers = vec![0; HEADERS_MAX];
        Self { data, whole: Vec::new(), headers, first: Vec::new(), rest: Vec::new(), id: 0, family: PhantomData }
    }
}

impl<F: Cut> Fragmenter<F> {
    /// Makes the packet its own first fragment, and the others in `rest`.
    fn cut(&mut self, cx: &mut NodeCx<'_>, packet: &mut Packet) -> Result<(), Drop> {
        let Self { data, whole, headers, first, rest, id, .. } = self;
        let mut view = cx.view(packet);
        let (adjacency, rx_if, table, local) = (view.aux(), view.rx_if(), view.table(), view.has(flags::LOCAL));
        let mtu = data.adjacencies.get(adjacency).mtu.into();
        whole.resize(view.total_len(), 0);
        view.copy_out(0, whole);
        let finished = view.has(flags::CHECKSUM);
        if finished {
            finish_checksum::<F>(&view, whole)?;
            view.clear_unfinished_checksum();
        }
        *id = id.wrapping_add(1);
        let mut first_payload = 0..0;
        first.clear();
        F::plan(whole, mtu, *id, headers, |headers, payload| {
            if first.is_empty() {
                first.extend(headers);
                first_payload = payload;
                return Ok(());
            }
            let mut fragment = cx.alloc_parts(&[headers, &whole[payload]], rx_if).ok_or(Drop::Memory)?;
            let mut view = cx.view(&mut fragment);
            view.set_aux(adjacency);
            view.mark(if local { flags::LOCAL } else { 0 });
            if let Some(table) = table {
                view.set_table(table);
            }
            rest.push(fragment);
            Ok(())
        })?;
        cx.cut(packet, first_payload.end);
        let mut view = cx.view(packet);
        // IPv6 headers grow by the fragment header.
        if !view.push(first.len() - first_payload.start) {
            return Err(Drop::Header);
        }
        let shift = first.len() - first_payload.start;
        let bytes = view.bytes_mut();
        bytes.get_mut(..first.len()).ok_or(Drop::Malformed)?.copy_from_slice(first);
        if finished {
            // The checksum lies in the first fragment, near its front.
            let end = bytes.len().min(first_payload.end + shift);
            bytes[first.len()..end].copy_from_slice(&whole[first_payload.start..end - shift]);
        }
        Ok(())
    }
}

/// Finishes a checksum that was left to a device: fragments have none of their own.
fn finish_checksum<F: LocalFamily>(packet: &Pkt<'_>, whole: &mut [u8]) -> Result<(), Drop> {
    let Behind::Upper { protocol, offset, .. } = F::behind(packet) else { return Err(Drop::Malformed) };
    let l4 = whole.get_mut(usize::from(offset)..).ok_or(Drop::Malformed)?;
    fill_l4(protocol, F::pseudo(packet, protocol, l4.len()), l4).ok_or(Drop::Malformed)
}

/// The nodes of this module.
pub(crate) fn nodes(router: &Router) -> Vec<NodeSpec> {
    vec![node::<V4>(router), node::<V6>(router)]
}

fn node<F: Cut>(router: &Router) -> NodeSpec {
    let node = Fragmenter::<F>::new(router.data.clone());
    NodeSpec::node(node_name(F::ID, "frag"), node).with_next(node_name(F::ID, "rewrite")).traced(trace::<F>)
}
