//! What recording of flows reads of packets: any bytes give a key, and its record has the length that the template says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_flowprobe::key::{Record, Way};
use quiver_flowprobe::observe;
use quiver_flowprobe::template::Template;

fuzz_target!(|data: &[u8]| {
    let Some((first, bytes)) = data.split_first() else { return };
    let record = Record::from_bits(*first | 1);
    for seen in [
        observe::frame(bytes, record, Way::Rx),
        observe::packet(bytes, true, Some(&[7; 12]), record, Way::Tx),
        observe::packet(bytes, false, None, record, Way::Rx),
    ] {
        let template = Template::of(&seen.key);
        let mut out = Vec::new();
        template.write(&mut out);
        assert_eq!(out.len(), template.template_len());
        assert_eq!(Template::at(template.index()), Some(template));
    }
});
