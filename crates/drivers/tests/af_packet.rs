//! AF_PACKET on real devices: veth pairs between namespaces, kernels and raw sockets as peers.

mod common;

use std::time::Duration;

use common::{Rig, frame, quiet_scene};
use quiver_drivers::af_packet::AfPacketConfig;
use quiver_testbed::{LinkOptions, RawPort, Scenario};

const LONG: Duration = Duration::from_secs(5);
const QUIET: Duration = Duration::from_millis(100);

fn configs(queues: usize) -> [AfPacketConfig; 2] {
    ["r0", "r1"].map(|name| AfPacketConfig { rx_queues: queues, ..AfPacketConfig::new(name) })
}

/// Sends all frames in bursts and takes as many out on the other side; sorted, since queues may overtake one another.
fn carry(from: &mut RawPort, to: &mut RawPort, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    for burst in frames.chunks(200) {
        burst.iter().for_each(|f| from.send(f).unwrap());
        for _ in burst {
            got.extend(to.recv(LONG).unwrap());
        }
    }
    got.extend(to.drain(QUIET).unwrap());
    got
}

#[test]
fn frames_of_all_sizes_cross_unchanged_with_one_and_two_queues() {
    let Some(_scenario) = Scenario::begin(&[]) else { return };
    for queues in [1, 2] {
        let (a, middle, b) = quiet_scene(&LinkOptions { queues: queues as u32, ..LinkOptions::default() });
        let mut rig = Rig::new(&middle, queues, configs(queues));
        let (mut left, mut right) = (a.raw("eth0").unwrap(), b.raw("eth0").unwrap());
        let frames: Vec<_> = (60..=1514).enumerate().map(|(i, len)| frame(i as u32, len)).collect();
        let mut got = carry(&mut left, &mut right, &frames);
        got.sort_by_key(Vec::len);
        assert!(got == frames, "{} of {} arrived\n{}", got.len(), frames.len(), rig.report());
        let mut back = carry(&mut right, &mut left, &frames);
        back.sort_by_key(Vec::len);
        assert!(back == frames, "{} of {} came back\n{}", back.len(), frames.len(), rig.report());
        assert_eq!(rig.packets(0), (1455, 1455));
        assert_eq!(rig.packets(1), (1455, 1455));
        rig.assert_pool_is_whole();
    }
}
