//! Routes of a routing daemon's stream (FPM) outlive the process: the daemon says them again only seconds after it has connected to the
//! next one. The kernel's routes are read from the kernel.

use std::time::{Duration, Instant};

use quiver_net::Router;
use quiver_net::restart::{Damaged, Load, Names, Round, Save, Subject};

use crate::control::{LinuxNl, Namespace, name};

/// How long the main thread waits for all readers: one may be in the middle of something that concerns a million routes.
const AHEAD: Duration = Duration::from_secs(2);
/// The same while nobody receives. The daemon says again what is left out then.
const LAST: Duration = Duration::from_millis(20);

/// Adds the subject.
pub fn init(router: &mut Router) {
    router.add_restart_subject(Subject { save, load, ..Subject::new("routes of FPM", 1) });
}

/// Numbers and names of the host interfaces of a namespace: routes lead by numbers, which mean something only as long as they are the same.
fn links<'a>(router: &'a Router, namespace: &'a Namespace) -> impl Iterator<Item = (u32, &'a str)> {
    let hosts = router.host_interfaces().iter().filter(move |host| host.namespace == *namespace);
    hosts.map(|host| (host.host_ifindex, host.host_name.as_str()))
}

fn save(router: &mut Router, save: &mut Save) {
    let round = save.round();
    let patience = if round == Round::Last { LAST } else { AHEAD };
    let Some(own) = router.part::<LinuxNl>().filter(|own| own.fpm.is_some()) else {
        save.u64(0);
        return;
    };
    let until = Instant::now() + patience;
    let followers = own.readers.iter().filter(|(_, follower)| !follower.ending);
    let asked: Vec<_> = followers.map(|(namespace, follower)| (namespace, follower.save_fpm(round))).collect();
    save.u64(asked.len() as u64);
    for (namespace, saved) in asked {
        save.u8(u8::from(namespace.is_some())).text(namespace.as_deref().unwrap_or_default());
        let links: Vec<_> = links(router, namespace).collect();
        save.u64(links.len() as u64);
        for (number, name) in links {
            save.u32(number).text(name);
        }
        let bytes = saved.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or_default();
        save.u64(bytes.len() as u64).raw(&bytes);
    }
}

fn load(router: &mut Router, load: &mut Load<'_>, _: &Names, _: Round) -> Result<u64, Damaged> {
    let mut all = Vec::new();
    for _ in 0..load.count(1 + 2 + 8 + 8)? {
        let is_named = load.u8()? != 0;
        let text = load.text()?.to_owned();
        let namespace: Namespace = is_named.then_some(text);
        let mut is_same = true;
        for _ in 0..load.count(4 + 2)? {
            let (number, host) = (load.u32()?, load.text()?);
            is_same &= links(router, &namespace).all(|(own, name)| (own == number) == (name == host));
        }
        let length = load.count(1)?;
        let bytes = load.raw(length)?;
        if is_same {
            all.push((namespace, bytes.to_vec()));
        } else {
            let namespace = name(&namespace);
            tracing::warn!(target: "linux-nl", "namespace {namespace}: host interfaces have other numbers now, routes of FPM come again");
        }
    }
    let Some(own) = router.part_mut::<LinuxNl>() else { return Ok(0) };
    for (namespace, bytes) in all.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
        if let Some(follower) = own.readers.get_mut(&namespace).filter(|follower| !follower.ending) {
            follower.restore_fpm(bytes);
        }
    }
    Ok(own.readers.values().map(|follower| follower.figures().fpm.by_protocol.values().sum::<u64>()).sum())
}
