//! Non-blocking streams and listeners as tasks use them.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;

use super::{Reactor, yield_now};

/// After so many operations in a row that did not have to wait, a task lets others run.
const IN_A_ROW: u32 = 32;

/// A descriptor in non-blocking mode, and the reactor that waits for it.
pub struct AsyncFd<T: AsFd> {
    io: T,
    reactor: Rc<Reactor>,
    in_a_row: Cell<u32>,
}

impl<T: AsFd> AsyncFd<T> {
    /// Takes a descriptor and makes it non-blocking.
    ///
    /// # Errors
    /// Those of ioctl(FIONBIO).
    pub fn new(reactor: &Rc<Reactor>, io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Ok(Self { io, reactor: Rc::clone(reactor), in_a_row: Cell::new(0) })
    }

    /// The descriptor's owner.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// The reactor.
    pub fn reactor(&self) -> &Rc<Reactor> {
        &self.reactor
    }

    /// Waits until an operation that reads would not block.
    ///
    /// # Errors
    /// Those of epoll, or that the descriptor was [shut](Self::cancel).
    pub async fn readable(&self) -> io::Result<()> {
        self.reactor.readable(self.io.as_fd()).await
    }

    /// Waits until an operation that writes would not block.
    ///
    /// # Errors
    /// Those of epoll, or that the descriptor was [shut](Self::cancel).
    pub async fn writable(&self) -> io::Result<()> {
        self.reactor.writable(self.io.as_fd()).await
    }

    /// Ends all waits for this descriptor with an error.
    pub fn cancel(&self) {
        self.reactor.forget(self.io.as_fd());
    }

    /// Runs an operation that reads, as often as it takes until it does not answer `WouldBlock`.
    ///
    /// # Errors
    /// Those of the operation and of [`readable`](Self::readable).
    pub async fn read_with<R>(&self, mut operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            match operation(&self.io) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.in_a_row.set(0);
                    self.readable().await?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return self.fairly(result).await,
            }
        }
    }

    /// Runs an operation that writes, as often as it takes until it does not answer `WouldBlock`.
    ///
    /// # Errors
    /// Those of the operation and of [`writable`](Self::writable).
    pub async fn write_with<R>(&self, mut operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        loop {
            match operation(&self.io) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.in_a_row.set(0);
                    self.writable().await?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return self.fairly(result).await,
            }
        }
    }

    /// Reads what is there into `buffer`, waiting for the first byte. 0 is the end.
    ///
    /// # Errors
    /// Those of read and epoll.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_with(|io| Ok(rustix::io::read(io, &mut *buffer)?)).await
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// Those of read and epoll, and `UnexpectedEof`.
    pub async fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.read(buffer).await? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => buffer = &mut buffer[count..],
            }
        }
        Ok(())
    }

    /// Writes some of `bytes`, waiting for room.
    ///
    /// # Errors
    /// Those of write and epoll.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_with(|io| Ok(rustix::io::write(io, bytes)?)).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of write and epoll, and `WriteZero`.
    pub async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes).await? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// A peer that is always ready must not keep the thread for itself.
    async fn fairly<R>(&self, result: io::Result<R>) -> io::Result<R> {
        let in_a_row = self.in_a_row.get() + 1;
        self.in_a_row.set(in_a_row % IN_A_ROW);
        if in_a_row == IN_A_ROW {
            yield_now().await;
        }
        result
    }
}

impl AsyncFd<UnixListener> {
    /// Waits for a connection and takes it.
    ///
    /// # Errors
    /// Those of accept and epoll.
    pub async fn accept(&self) -> io::Result<AsyncFd<UnixStream>> {
        let (stream, _) = self.read_with(UnixListener::accept).await?;
        AsyncFd::new(&self.reactor, stream)
    }
}

impl AsyncFd<TcpListener> {
    /// Waits for a connection and takes it.
    ///
    /// # Errors
    /// Those of accept and epoll.
    pub async fn accept(&self) -> io::Result<(AsyncFd<TcpStream>, SocketAddr)> {
        let (stream, peer) = self.read_with(TcpListener::accept).await?;
        Ok((AsyncFd::new(&self.reactor, stream)?, peer))
    }
}

impl<T: AsFd> Drop for AsyncFd<T> {
    fn drop(&mut self) {
        self.reactor.forget(self.io.as_fd());
    }
}
