//! Rules of the state machine, with a random source that gives the most.

use super::*;
use quiver_wire::group::Sources;

const FIRST: &str = "239.1.1.1";
const SECOND_GROUP: &str = "239.1.1.2";

fn group(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn set(groups: &[&str]) -> BTreeSet<IpAddr> {
    groups.iter().map(|g| group(g)).collect()
}

fn most(below: u64) -> u64 {
    below - 1
}

/// A membership that is running and has told all of its groups.
fn quiet(groups: &[&str]) -> Membership {
    let mut m = Membership::default();
    m.set_running(true, 0);
    m.want("test", &set(groups), 0);
    while let Some(due) = m.next_due() {
        m.take_due(due, &mut most);
    }
    m
}

/// What is said at each time, in words.
fn said(m: &mut Membership) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while let Some(due) = m.next_due() {
        for say in m.take_due(due, &mut most) {
            all.push((due / (SECOND / 10), words(&say)));
        }
    }
    all
}

fn words(say: &Say) -> String {
    match say {
        Say::Records(records) => {
            let one = |r: &Record| format!("{:?} {} {:?}", r.kind, r.group, r.sources);
            records.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Say::Old { version, group, leave } => format!("{version:?} {group} {leave}"),
    }
}

fn query(version: Version, of: Option<&str>, ms: u32) -> Query {
    let group = of.map(group);
    Query { version, group, max_response_ms: ms, robustness: 0, interval_s: 0, sources: Sources::NONE }
}

#[test]
fn joining_and_leaving_are_told_twice_and_together_with_what_is_told_again() {
    let mut m = Membership::default();
    m.set_running(true, 0);
    m.want("a", &set(&[FIRST]), 0);
    assert_eq!(m.take_due(0, &mut most).iter().map(words).collect::<Vec<_>>(), ["ToExclude 239.1.1.1 []"]);
    m.want("b", &set(&[SECOND_GROUP]), SECOND / 2);
    let told = said(&mut m);
    let both = "ToExclude 239.1.1.1 [], ToExclude 239.1.1.2 []".to_owned();
    assert_eq!(told, [(5, both), (15, "ToExclude 239.1.1.2 []".to_owned())]);
    m.want("a", &set(&[]), 2 * SECOND);
    let left = "ToInclude 239.1.1.1 []".to_owned();
    assert_eq!(said(&mut m), [(20, left.clone()), (30, left)]);
}

#[test]
fn a_group_is_left_with_its_last_user() {
    let mut m = quiet(&[FIRST]);
    m.want("other", &set(&[FIRST]), 0);
    m.want("test", &set(&[]), 0);
    assert!(m.has(&group(FIRST)) && m.next_due().is_none());
    m.want("other", &set(&[]), 0);
    assert!(!m.has(&group(FIRST)) && m.next_due() == Some(0));
    assert!(!m.is_idle(), "it is still to be told");
    said(&mut m);
    assert!(m.is_idle());
}

#[test]
fn nothing_is_told_of_all_hosts_nor_of_the_interface_itself() {
    assert_eq!(quiet(&["224.0.0.1", "ff02::1", "ff01::5"]).users().count(), 3);
    let mut m = Membership::default();
    m.set_running(true, 0);
    m.want("test", &set(&["224.0.0.1", "ff02::1", "ff01::5", "ff00::5"]), 0);
    assert_eq!(m.next_due(), None);
    m.hear(&query(Version::Third, None, 1000), 0, &mut most);
    assert_eq!(said(&mut m), []);
    m.hear(&query(Version::Third, Some("224.0.0.1"), 1000), 0, &mut most);
    assert_eq!(m.next_due(), None);
}

#[test]
fn a_link_that_comes_up_is_told_of_everything_and_one_that_is_down_of_nothing() {
    let mut m = quiet(&[FIRST]);
    m.set_running(false, 0);
    m.want("test", &set(&[FIRST, SECOND_GROUP]), 0);
    m.hear(&query(Version::Third, None, 1000), 0, &mut most);
    assert_eq!(m.next_due(), None);
    m.set_running(true, SECOND);
    assert_eq!(said(&mut m)[0], (10, "ToExclude 239.1.1.1 [], ToExclude 239.1.1.2 []".to_owned()));
}

#[test]
fn a_general_query_is_answered_once_within_its_time_with_all_groups() {
    let mut m = quiet(&[FIRST, SECOND_GROUP]);
    m.hear(&query(Version::Third, None, 5000), 0, &mut most);
    m.hear(&query(Version::Third, None, 9000), 0, &mut most);
    m.hear(&query(Version::Third, Some(FIRST), 9000), 0, &mut most);
    assert_eq!(said(&mut m), [(50, "IsExclude 239.1.1.1 [], IsExclude 239.1.1.2 []".to_owned())]);
}

#[test]
fn a_query_for_a_group_is_answered_for_it_and_for_its_sources() {
    let mut m = quiet(&[FIRST, SECOND_GROUP]);
    m.hear(&query(Version::Third, Some("239.9.9.9"), 1000), 0, &mut most);
    assert_eq!(m.next_due(), None, "nobody listens to it");
    let with = |last: u8| {
        let message = [0x11, 10, 0, 0, 239, 1, 1, 1, 0, 0, 0, 1, 10, 0, 0, last];
        Query::parse_igmp(&message).unwrap()
    };
    m.hear(&with(2), 0, &mut most);
    m.hear(&with(1), 0, &mut most);
    m.hear(&with(2), 0, &mut most);
    assert_eq!(said(&mut m), [(10, "IsInclude 239.1.1.1 [10.0.0.1, 10.0.0.2]".to_owned())]);
    m.hear(&with(1), 0, &mut most);
    m.hear(&query(Version::Third, Some(FIRST), 500), 0, &mut most);
    assert_eq!(said(&mut m), [(5, "IsExclude 239.1.1.1 []".to_owned())]);
}

#[test]
fn sources_that_are_asked_for_are_bounded() {
    let mut m = quiet(&[FIRST]);
    for n in 0..200_u8 {
        let message = [0x11, 10, 0, 0, 239, 1, 1, 1, 0, 0, 0, 1, 10, 0, 0, n];
        m.hear(&Query::parse_igmp(&message).unwrap(), 0, &mut most);
        assert!(m.specific[&group(FIRST)].1.len() <= 64);
    }
    assert_eq!(said(&mut m), [(10, "IsExclude 239.1.1.1 []".to_owned())], "too many stand for all");
}

#[test]
fn a_flood_of_queries_that_want_answers_at_once_gets_few() {
    let mut m = quiet(&[FIRST]);
    let mut sent = 0;
    for millisecond in 0..1000 {
        let now = millisecond * (SECOND / 1000);
        m.hear(&query(Version::Third, None, 0), now, &mut most);
        sent += m.take_due(now, &mut most).len();
    }
    assert!((1..=10).contains(&sent), "{sent}");
}

#[test]
fn where_an_older_router_asks_its_version_is_spoken_until_it_is_silent() {
    for (version, told, left) in [(Version::Second, "Second 239.1.1.1 false", 1), (Version::First, "First 239.1.1.1 false", 0)] {
        let mut m = quiet(&[FIRST]);
        m.hear(&query(version, None, 1000), 0, &mut most);
        assert_eq!((m.version(), said(&mut m)), (version, vec![(10, told.to_owned())]));
        m.want("test", &set(&[]), 2 * SECOND);
        assert_eq!(said(&mut m).len(), left, "version 1 has no leaving");
        m.want("test", &set(&[FIRST]), 3 * SECOND);
        assert_eq!(said(&mut m), [(30, told.to_owned()), (130, told.to_owned())], "ten seconds apart");
        // Two intervals and a response time after the query.
        m.want("test", &set(&[FIRST, SECOND_GROUP]), 251 * SECOND);
        assert_eq!(said(&mut m), [(2510, "ToExclude 239.1.1.2 []".to_owned()), (2520, "ToExclude 239.1.1.2 []".to_owned())]);
    }
}

#[test]
fn another_version_cancels_what_was_to_be_said() {
    let mut m = quiet(&[FIRST]);
    m.hear(&query(Version::Third, None, 10_000), 0, &mut most);
    m.hear(&query(Version::Second, Some("239.9.9.9"), 100), 0, &mut most);
    assert_eq!(m.next_due(), None);
}

#[test]
fn the_querier_says_how_often_changes_are_told() {
    let mut m = quiet(&[]);
    m.hear(&Query { robustness: 4, interval_s: 10, ..query(Version::Third, None, 100) }, 0, &mut most);
    said(&mut m);
    m.want("test", &set(&[FIRST]), 0);
    assert_eq!(said(&mut m).len(), 4);
    m.hear(&query(Version::Second, None, 1000), SECOND, &mut most);
    assert_eq!(m.older[1], 42 * SECOND, "robustness times its interval, and a response time");
}
