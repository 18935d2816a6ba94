//! Sockets that listen, and the clients that wait there.

use std::io;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{BACKLOG_MAX, BURST, Channel, Hub, STRANGERS};
use crate::memif::session::{self, Session};
use crate::memif::{MemifError, socket};

impl Hub {
    /// Has a socket listen, by what the process before this one listened with where that is there.
    pub(super) fn listen(&mut self, id: u32, inherited: Option<OwnedFd>) -> Result<(), MemifError> {
        let token = self.token();
        let Some(socket) = self.sockets.get_mut(&id) else { return Err(MemifError::NoSocket(id)) };
        if socket.listener.is_some() {
            return Ok(());
        }
        if let Some(listener) = inherited {
            (socket.listener, socket.shared) = (Some((token, listener)), true);
            return Ok(());
        }
        let path = &socket.config.path;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => MemifError::Listening(path.clone()),
            _ => MemifError::System { what: format!("listening at {path}"), error },
        };
        let background = &socket.background;
        let listener = socket::listener(path, self.group, |fd| background.discard(fd)).map_err(failed)?;
        epoll::add(&self.epoll, &listener, EventData::new_u64(token), EventFlags::IN).map_err(|e| failed(e.into()))?;
        socket.listener = Some((token, listener));
        Ok(())
    }

    pub(super) fn stop_listening(&mut self, id: u32) {
        let strangers: Vec<u64> = self.channels.iter().filter(|(_, c)| c.socket == id).map(|(t, _)| *t).collect();
        for token in strangers {
            self.end(token, Some("socket is closed"));
        }
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        socket.paused = None;
        if std::mem::take(&mut socket.shared) {
            // It goes on in the other process.
            socket.listener = None;
        }
        if let Some((_, listener)) = socket.listener.take() {
            let _ = epoll::delete(&self.epoll, &listener);
            if !socket.config.path.starts_with('@') {
                // Somebody may have removed it already.
                let _ = std::fs::remove_file(&socket.config.path);
            }
            if !socket::close_listener(&listener, |fd| socket.background.discard(fd)) {
                socket.background.discard(listener);
            }
        }
    }

    /// Takes the clients that wait at a socket.
    pub(super) fn accept(&mut self, id: u32) {
        for _ in 0..BURST {
            let Some(socket) = self.sockets.get(&id) else { return };
            let Some((_, listener)) = &socket.listener else { return };
            let background = socket.background.clone();
            if background.backlog() > BACKLOG_MAX {
                return self.pause(id, "what its peers have sent cannot be closed".into());
            }
            let fd = match socket::accept(listener) {
                Ok(fd) => fd,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => return,
                Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => continue,
                Err(error) => return self.pause(id, error.to_string()),
            };
            if socket::send(&fd, &session::hello(), None).is_err() {
                background.discard(fd);
                continue;
            }
            let strangers = |c: &Channel| c.socket == id && c.session.key.is_none();
            if self.channels.values().filter(|c| strangers(c)).count() >= STRANGERS
                && let Some(oldest) = self.channels.iter().find(|(_, c)| strangers(c)).map(|(token, _)| *token)
            {
                self.end(oldest, Some("too many connections"));
            }
            self.add_channel(fd, id, Session::server());
        }
    }

    /// Stops accepting clients of a socket until the next tick. Otherwise epoll would report the waiting client again at once.
    pub(super) fn pause(&mut self, id: u32, reason: String) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Some((_, listener)) = &socket.listener else { return };
        let _ = epoll::delete(&self.epoll, listener);
        if socket.paused.is_none() {
            self.notices.push(format!("socket {id} ({}) cannot take a client: {reason}", socket.config.path));
        }
        socket.paused = Some(reason);
    }

    /// Tries again where clients wait.
    pub(super) fn resume(&mut self) {
        let paused: Vec<u32> = self.sockets.iter().filter(|(_, s)| s.paused.is_some()).map(|(id, _)| *id).collect();
        for id in paused {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let Some((token, listener)) = &socket.listener else { continue };
            let _ = epoll::add(&self.epoll, listener, EventData::new_u64(*token), EventFlags::IN);
            // Where it fails again, that is no news.
            let before = self.notices.len();
            socket.paused = None;
            self.accept(id);
            self.notices.truncate(before);
        }
    }
}
