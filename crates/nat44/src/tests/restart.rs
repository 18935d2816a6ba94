//! Sessions outlive the process.

use quiver_net::restart::{Load, Round, Save, sections};
use quiver_net::testing::Harness;

use super::*;

const CONFIG: &str = "nat44 add address 198.51.100.10";

fn sessions(bed: &mut Bed) -> Vec<crate::session::Session> {
    let threads = crate::control::threads(&bed.h.router);
    let mut all: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| crate::control::dump(&mut bed.h.router, thread, 0, 1 << 20).0)
        .map(|(_, s)| s)
        .collect();
    all.sort_by_key(|session| session.i2o.0);
    all
}

fn restored(h: &mut Harness, bytes: &[u8], round: Round) -> Result<u64, String> {
    let all = h.router.restore(bytes, round).unwrap();
    all.into_iter().find(|restored| restored.subject == "nat44 sessions").unwrap().result
}

#[test]
fn sessions_go_on_with_ages_states_and_counts() {
    for workers in [0, 2] {
        let mut old = Bed::new(workers, CONFIG);
        for port in 0..200 {
            old.h.inject(old.inside, &from_inside(2 + (port % 9) as u8).udp(1000 + port, 9).build());
        }
        assert_eq!(old.h.run().len(), 200);
        let ahead = old.h.router.snapshot(Round::Ahead);
        old.out(from_inside(3).udp(5000, 9));
        run(&mut old.h, "nat44 del session in 10.0.0.2:1000 udp external-host 203.0.113.9:9");
        let last = old.h.router.snapshot(Round::Last);

        let mut new = Bed::new(workers, CONFIG);
        assert_eq!(restored(&mut new.h, &ahead, Round::Ahead), Ok(200));
        assert_eq!(restored(&mut new.h, &last, Round::Last), Ok(200), "one more, one less");
        assert_eq!(sessions(&mut new), sessions(&mut old));
        // The outside endpoint of a flow is the same; another one gets a port that is free.
        let seen = |bed: &mut Bed, port| bed.out(from_inside(3).udp(port, 9)).from();
        assert_eq!(seen(&mut new, 5000), seen(&mut old, 5000));
        assert_eq!(new.sessions(), 200);
        new.h.assert_buffers_held(0);
    }
}

#[test]
fn another_number_of_threads_takes_the_sessions_up() {
    for (before, after) in [(1, 2), (4, 2), (2, 3)] {
        let mut old = Bed::new(before, CONFIG);
        let outside: Vec<_> = (2..11).map(|host| old.out(from_inside(host).udp(1000 * u16::from(host), 9)).from()).collect();
        let bytes = old.h.router.snapshot(Round::Ahead);
        let mut new = Bed::new(after, CONFIG);
        assert_eq!(restored(&mut new.h, &bytes, Round::Last), Ok(9));
        for (host, outside) in (2..11).zip(outside) {
            assert_eq!(new.out(from_inside(host).udp(1000 * u16::from(host), 9)).from(), outside);
            assert_eq!(new.back(from_outside(outside.0).udp(9, outside.1)).to().1, 1000 * u16::from(host));
        }
        assert_eq!(new.sessions(), 9);
    }
}

#[test]
fn damaged_sessions_cost_the_sessions_alone() {
    let mut old = Bed::new(0, CONFIG);
    old.out(from_inside(2).udp(1000, 9));
    let whole = old.h.router.snapshot(Round::Ahead);
    let section = sections(&whole).unwrap().into_iter().find(|s| s.name == "nat44 sessions").unwrap();
    // Every byte of the section wrong in turn, with a checksum that is right.
    for at in 0..section.bytes.len() {
        let mut new = Bed::new(0, CONFIG);
        let mut save = Save::new(Round::Ahead);
        for other in sections(&whole).unwrap() {
            let mut bytes = other.bytes.to_vec();
            if other.name == section.name {
                bytes[at] ^= 0xff;
            }
            save.section(other.name, other.version, |save| {
                save.raw(&bytes);
            });
        }
        let _ = restored(&mut new.h, &save.finish(), Round::Last);
        assert!(new.sessions() <= 1);
        new.out(from_inside(4).udp(7000, 9));
        run(&mut new.h, "nat44 plugin disable");
    }
    assert!(Load::new(section.bytes).count(1 << 40).is_err());
}
