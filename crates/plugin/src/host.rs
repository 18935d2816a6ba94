//! What the router does for a plugin.

use std::ffi::CString;

use crate::abi::{self, NO_INTERFACE};

/// The router, for the main thread while it runs a function of the plugin. At other times it refuses.
#[derive(Clone, Copy)]
pub struct Host(*const abi::Host);

impl Host {
    /// The router that starts a plugin.
    ///
    /// # Safety
    /// It stays as long as the plugin is loaded.
    pub unsafe fn new(raw: *const abi::Host) -> Self {
        Self(raw)
    }

    fn raw(&self) -> &abi::Host {
        // SAFETY: it stays as long as this plugin (`new`).
        unsafe { &*self.0 }
    }

    /// Writes a line into the log.
    pub fn log(&self, level: Level, text: &str) {
        let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the router's function, and a string that ends with zero.
        unsafe { (self.raw().log)(self.0, level as u32, text.as_ptr()) }
    }

    /// Switches a feature of the plugin on an interface. `false`: no such feature or interface.
    pub fn feature(&self, arc: &str, node: &str, interface: u32, on: bool) -> bool {
        let (Ok(arc), Ok(node)) = (CString::new(arc), CString::new(node)) else { return false };
        // SAFETY: as `log`.
        unsafe { (self.raw().feature)(self.0, arc.as_ptr(), node.as_ptr(), interface, on.into()) == 0 }
    }

    /// Index of an interface by its name.
    pub fn interface(&self, name: &str) -> Option<u32> {
        let name = CString::new(name).ok()?;
        // SAFETY: as `log`.
        let index = unsafe { (self.raw().interface)(self.0, name.as_ptr()) };
        (index != NO_INTERFACE).then_some(index)
    }

    /// Name of an interface.
    pub fn interface_name(&self, interface: u32) -> Option<String> {
        let mut name = [0_u8; 256];
        // SAFETY: as `log`, and so many bytes to write to.
        let length = unsafe { (self.raw().interface_name)(self.0, interface, name.as_mut_ptr().cast(), name.len()) };
        let name = name.get(..usize::try_from(length).ok()?)?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// Sum of a counter over all threads: packets and bytes.
    pub fn sum(&self, counter: u32, index: u32) -> (u64, u64) {
        let (mut packets, mut bytes) = (0, 0);
        // SAFETY: as `log`, and two numbers to write to.
        unsafe { (self.raw().sum)(self.0, counter, index, &raw mut packets, &raw mut bytes) };
        (packets, bytes)
    }
}

/// Level of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Something does not work.
    Error = 1,
    /// Something is wrong.
    Warning = 2,
    /// Something that one wants to know.
    Notice = 3,
    /// For who looks closely.
    Debug = 4,
}
