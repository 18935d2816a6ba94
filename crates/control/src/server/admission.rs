//! Who may do what on a socket.
//!
//! Without `unix { read-only-gid }` the file system decides: owner and group may open the sockets, and who may may do everything.
//! With it everybody may open them, and the kernel's word on the peer decides (SO_PEERCRED and SO_PEERGROUPS: as of when it
//! connected, whatever it does later): the router's user, root and the members of `gid` do everything, those of `read-only-gid`
//! read, all others are turned away at once.

use std::os::fd::AsFd;

use quiver_command::operation::Access;
use quiver_graph::reactor::peer_groups;
use rustix::net::sockopt::socket_peercred;

/// The rule of a router's sockets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Admission {
    /// Members do everything.
    pub gid: Option<u32>,
    /// Members read.
    pub read_only: Option<u32>,
}

/// What is said to a client that is turned away.
pub const REFUSAL: &str = "permission denied: you are in none of the groups of unix { gid read-only-gid }";

impl Admission {
    /// What the peer may do; nothing for those who are turned away.
    pub fn of(&self, socket: impl AsFd) -> Option<Access> {
        if self.read_only.is_none() {
            return Some(Access::Change);
        }
        let peer = socket_peercred(&socket).ok()?;
        let mut groups = peer_groups(&socket).ok()?;
        groups.push(peer.gid.as_raw());
        self.judge(peer.uid.as_raw(), &groups)
    }

    fn judge(&self, uid: u32, groups: &[u32]) -> Option<Access> {
        let is_member = |gid: Option<u32>| gid.is_some_and(|gid| groups.contains(&gid));
        if uid == 0 || uid == rustix::process::geteuid().as_raw() || is_member(self.gid) {
            Some(Access::Change)
        } else {
            is_member(self.read_only).then_some(Access::Read)
        }
    }

    /// Rights of the sockets' files.
    pub fn mode(&self) -> u32 {
        if self.read_only.is_some() { 0o666 } else { 0o660 }
    }

    /// Rights of the folder that they lie in.
    pub fn folder_mode(&self) -> u32 {
        if self.read_only.is_some() { 0o751 } else { 0o750 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_decide_and_the_stronger_one_wins() {
        let rule = Admission { gid: Some(100), read_only: Some(200) };
        let other = rustix::process::geteuid().as_raw().wrapping_add(1).max(1);
        assert_eq!(rule.judge(0, &[]), Some(Access::Change));
        assert_eq!(rule.judge(rustix::process::geteuid().as_raw(), &[]), Some(Access::Change));
        assert_eq!(rule.judge(other, &[7, 100]), Some(Access::Change));
        assert_eq!(rule.judge(other, &[200]), Some(Access::Read));
        assert_eq!(rule.judge(other, &[200, 100]), Some(Access::Change));
        assert_eq!(rule.judge(other, &[7]), None);
        let alone = Admission { gid: None, read_only: Some(200) };
        assert_eq!((alone.judge(other, &[200]), alone.judge(other, &[100])), (Some(Access::Read), None));
    }

    #[test]
    fn without_a_read_only_group_the_file_system_has_decided() {
        let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(Admission::default().of(&a), Some(Access::Change));
        assert_eq!((Admission::default().mode(), Admission::default().folder_mode()), (0o660, 0o750));
        // The peer is this process.
        assert_eq!(Admission { gid: None, read_only: Some(1) }.of(&a), Some(Access::Change));
    }
}
