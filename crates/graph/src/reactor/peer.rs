//! Who is at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The user and the process at the other end, as they were when it connected. The process is 0 where it cannot be seen from here: it is in
/// another namespace of processes.
///
/// # Errors
/// No Unix socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<(u32, i32)> {
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `found`, which is as long and may hold any numbers.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut found).cast(),
            &mut length,
        )
    };
    if result == 0 { Ok((found.uid, found.pid)) } else { Err(io::Error::last_os_error()) }
}

/// Groups that are asked for at first; most users are in fewer.
const USUAL: usize = 64;
/// Groups of a process at most (NGROUPS_MAX of Linux).
const MOST: usize = 65_536;

/// The supplementary groups that the process at the other end had when it connected.
///
/// # Errors
/// Those of getsockopt(SO_PEERGROUPS).
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; USUAL];
    loop {
        let bytes = size_of_val(groups.as_slice());
        let mut length = libc::socklen_t::try_from(bytes).map_err(io::Error::other)?;
        // SAFETY: the kernel writes at most `length` bytes, all of which are the vector's, and any bits are a u32.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        let wanted = length as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(wanted);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || wanted <= groups.len() || wanted > MOST {
            return Err(error);
        }
        groups.resize(wanted, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_peer_of_this_program_is_this_program() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_credentials(&one).unwrap(), (rustix::process::geteuid().as_raw(), std::process::id() as i32));
        assert!(peer_credentials(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn our_own_groups_are_those_of_the_process() {
        let (a, _b) = UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let mut expected: Vec<u32> = line.split_whitespace().map(|group| group.parse().unwrap()).collect();
        let mut groups = peer_groups(&a).unwrap();
        expected.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, expected);
        assert!(peer_groups(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
