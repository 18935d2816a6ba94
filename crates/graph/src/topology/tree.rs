//! Made sysfs trees for tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that looks like sysfs and goes away with the value.
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("quiver-sysfs-{}-{number}", std::process::id());
        let root = std::env::temp_dir().join(name);
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    /// Two sockets, each a memory node, of four cores with two threads: CPU n and n + 8 share a core.
    pub(super) fn two_nodes() -> Self {
        let tree = Self::new();
        tree.write("devices/system/cpu/present", "0-15\n");
        tree.write("devices/system/cpu/online", "0-15\n");
        tree.write("devices/system/cpu/isolated", "\n");
        tree.write("devices/system/node/node0/cpulist", "0-3,8-11\n");
        tree.write("devices/system/node/node1/cpulist", "4-7,12-15\n");
        for cpu in 0..16 {
            let file = |name| format!("devices/system/cpu/cpu{cpu}/topology/{name}");
            let core = cpu % 8;
            tree.write(&file("physical_package_id"), &format!("{}\n", core / 4));
            tree.write(&file("core_id"), &format!("{}\n", core % 4));
            tree.write(&file("thread_siblings_list"), &format!("{core},{}\n", core + 8));
        }
        tree
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
