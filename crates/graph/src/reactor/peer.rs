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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_peer_of_this_program_is_this_program() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_credentials(&one).unwrap(), (rustix::process::geteuid().as_raw(), std::process::id() as i32));
        assert!(peer_credentials(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
