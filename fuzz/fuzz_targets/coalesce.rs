//! Joining any frames: what joins is cut into the same frames again, byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_wire::checksum;
use quiver_wire::coalesce::Run;
use quiver_wire::gso::{GsoKind, Segments};

fuzz_target!(|input: &[u8]| {
    // Frames with their lengths in front.
    let (mut frames, mut rest) = (Vec::new(), input);
    while let Some((&[high, low], more)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([high, low])).min(more.len());
        frames.push(&more[..len]);
        rest = &more[len..];
    }
    let mut frames = frames.into_iter().peekable();
    while let Some(first) = frames.next() {
        let Some(mut run) = Run::begin(first, false) else { continue };
        let mut taken = vec![first];
        while let Some(next) = frames.next_if(|next| run.join(next, false)) {
            taken.push(next);
        }
        assert_eq!(run.segments(), taken.len());
        let head = run.finish().expect("a run has a super-frame");
        let mut frame = head.headers().to_vec();
        taken.iter().for_each(|segment| frame.extend(&segment[run.header_len()..]));
        let kind = GsoKind::from_virtio(head.gso_type).expect("a kind");
        let plan = Segments::new(&frame, 14, kind, head.gso_size).expect("a super-frame can be cut");
        assert_eq!(plan.count(), taken.len());
        for (segment, expected) in plan.iter().zip(&taken) {
            let mut bytes = vec![0; plan.header_len()];
            plan.write_header(segment.index, &mut bytes).expect("a header");
            bytes.extend(&frame[segment.payload]);
            // The bits of TCP that are reserved, and a checksum of 0xffff for 0, may differ.
            assert_eq!((bytes.len(), &bytes[plan.header_len()..]), (expected.len(), &expected[plan.header_len()..]));
        }
        checksum::complete(&mut frame, head.csum_start, head.csum_offset).expect("a checksum");
    }
});
