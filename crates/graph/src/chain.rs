//! Packets over several buffers: made here, and nowhere else, so that the spans of continuation buffers keep F2.

use quiver_buffer::{HEADROOM, Meta, NO_BUFFER};

use crate::IfIndex;
use crate::context::Core;
use crate::frame::{IF_MASK, Span, flags};
use crate::packet::{Env, Packet};

/// Copies `parts` into as many buffers as they need. `None` (and nothing taken) when buffers have run out; that is counted.
pub(crate) fn build(core: &mut Core, env: Env, parts: &[&[u8]], rx_if: IfIndex) -> Option<Packet> {
    let room = env.data_end as usize - HEADROOM;
    let total: usize = parts.iter().map(|p| p.len()).sum();
    let count = total.div_ceil(room).max(1);
    let mut buffers = Vec::new();
    if count > 1 {
        buffers.reserve_exact(count);
    }
    let first = core.cache.alloc();
    let rest = count - 1;
    let got = if first.is_some() && rest > 0 { core.cache.alloc_bulk(rest, &mut buffers) } else { 0 };
    let Some(first) = first.filter(|_| got == rest) else {
        core.cache.free_bulk(&buffers);
        first.inspect(|index| core.cache.free(*index));
        core.no_buffer += 1;
        core.interfaces.rx_no_buf.add(core.thread, rx_if.0, 1);
        return None;
    };
    let mut source = parts.iter().copied().filter(|p| !p.is_empty()).peekable();
    let mut offset_in_part = 0;
    let mut fill = |index: u32, room: usize| {
        let mut done = 0;
        while done < room {
            let Some(part) = source.peek() else { break };
            let n = (part.len() - offset_in_part).min(room - done);
            // SAFETY: `index` was allocated above and is ours alone; HEADROOM + room = data_end lies inside the buffer (R2).
            unsafe {
                let to = env.base.add(index as usize * env.stride as usize + HEADROOM + done);
                std::ptr::copy_nonoverlapping(part[offset_in_part..].as_ptr(), to, n);
            }
            done += n;
            offset_in_part += n;
            if offset_in_part == part.len() {
                source.next();
                offset_in_part = 0;
            }
        }
        Span::new(HEADROOM as u32, done as u32)
    };
    let span = fill(first, room);
    let mut context = rx_if.0 & IF_MASK;
    if rest > 0 {
        context |= flags::META | flags::CHAINED;
        let head = Meta { next: buffers[0], rest_len: (total - span.len()) as u32, ..Meta::EMPTY };
        // SAFETY: the metadata lines of buffers that we own, at valid indices (R1).
        unsafe { *env.meta.add(first as usize) = head };
        for (k, index) in buffers.iter().enumerate() {
            let segment = fill(*index, room).0;
            let next = buffers.get(k + 1).copied().unwrap_or(NO_BUFFER);
            // SAFETY: as above.
            unsafe { *env.meta.add(*index as usize) = Meta { next, segment, ..Meta::EMPTY } };
        }
    }
    Some(Packet { index: first, span: span.0, context, aux: 0 })
}
