//! The files in which a machine describes itself.

use std::fs;
use std::path::PathBuf;

/// A machine, by the folder that its `/proc`, `/sys` and `/dev` are in.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The machine below `root`; this one below `/`.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// A file's text without blanks at its ends; nothing where there is no such file or it says nothing.
    pub fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// The number in a file.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Names in a folder, sorted.
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Last part of what a link leads to.
    pub fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.root.join(path)).ok()?.file_name()?.to_str()?.to_owned())
    }

    /// What stands behind a key in a file of lines such as `Key:   value`.
    pub fn field(&self, path: &str, key: &str) -> Option<String> {
        let text = self.read(path)?;
        let line = text.lines().find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key));
        line.map(|(_, value)| value.trim().to_owned())
    }
}

/// Reads a list of numbers such as `0-3,8`. What is no number is passed over.
pub fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (last < 8192).then_some(first..=last)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Writes a sorted list of numbers such as `0-3,8`.
pub fn ranges(numbers: &[u32]) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *n => *last = *n,
            _ => parts.push((*n, *n)),
        }
    }
    let part = |(first, last): (u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    parts.into_iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub mod testing {
    use super::*;

    /// A made machine, gone with the value.
    pub struct Tree(PathBuf);

    impl Tree {
        pub fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("quiver-doctor-{}-{name}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        pub fn machine(&self) -> Machine {
            Machine::new(self.0.clone())
        }

        pub fn write(&self, path: &str, text: &str) -> &Self {
            let file = self.0.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
            self
        }

        pub fn link(&self, path: &str, to: &str) -> &Self {
            let file = self.0.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(to, file).unwrap();
            self
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        assert_eq!(numbers("0-3,8, 10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(numbers("x,2-,5,9-8,0-99999"), [5]);
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }
}
