//! A shared object in memory.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Object, RTLD_LOCAL, RTLD_NOW};
use quiver_plugin::abi::{self, SYMBOL};

use crate::declared::Declared;
use crate::elf;

/// Why a file is not loaded: which, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Why, in a line.
    pub why: String,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "plugin `{}': {}", self.name, self.why)
    }
}

/// A shared object that is in memory, and what it declares. Nothing of the plugin has run but what its compiler put at its beginning.
///
/// It stays in memory until [`Library::unload`]: what is forgotten cannot be missed by a thread that runs in it.
pub struct Library {
    object: ManuallyDrop<Object>,
    /// Its file.
    pub path: PathBuf,
    pub(crate) declared: Declared,
}

impl Library {
    /// Loads a file, after it has been looked at.
    ///
    /// # Errors
    /// It is no plugin, one of another version, or it declares what cannot be.
    pub fn open(path: &Path) -> Result<Self, Refused> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::load(path).map_err(|why| Refused { name, why })
    }

    fn load(path: &Path) -> Result<Self, String> {
        elf::check(path)?;
        let one_line = |error: libloading::Error| {
            let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            format!("cannot load it: {}", text.replace('\n', " "))
        };
        // SAFETY: an operator has put this plugin where plugins of this router lie, and it exports what a plugin exports: its code is
        // trusted as the router's own is.
        let object = unsafe { Object::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(one_line)?;
        // SAFETY: the symbol is a constant, which the first numbers in it confirm (`elf::check`).
        let symbol = unsafe { object.get::<*const abi::Plugin>(SYMBOL.as_bytes()) }.map_err(one_line)?;
        let plugin = *symbol;
        // SAFETY: as above; it stays as it is while the object is in memory.
        let declared = unsafe { Declared::read(plugin) }?;
        Ok(Self { object: ManuallyDrop::new(object), path: path.to_owned(), declared })
    }

    /// Name of the file.
    pub fn file(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Gives its memory back.
    ///
    /// # Safety
    /// No thread runs in it or will again, and no function of it is kept anywhere.
    pub(crate) unsafe fn unload(self) {
        // What it has closed or not is the linker's business: the router does not use it again.
        let _ = ManuallyDrop::into_inner(self.object).close();
    }
}
