//! Instructions of this program built for aarch64, counted by a plugin of QEMU (`emulator.c`), in the shape of callgrind's profile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::callgrind::{Function, output};

/// The file of the plugin's source.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/emulator.c");

/// A program for aarch64, linked statically, so that all that it calls is in its file.
#[derive(Debug)]
pub struct Program {
    file: PathBuf,
    /// Names of functions by their addresses.
    symbols: BTreeMap<u64, String>,
}

impl Program {
    /// Reads its symbols.
    ///
    /// # Errors
    /// There is no such file, or no `nm` for it.
    pub fn new(file: &Path) -> Result<Self, String> {
        let text = output(Command::new("aarch64-linux-gnu-nm").args(["-C", "--defined-only"]).arg(file))?;
        let symbol = |line: &str| {
            let (address, rest) = line.split_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            // Functions; `$x` marks code for disassemblers.
            ("tTwWi".contains(kind) && !name.starts_with('$')).then(|| (address, name.to_owned()))
        };
        let mut symbols = BTreeMap::<u64, String>::new();
        for (address, name) in text.lines().filter_map(symbol) {
            // Of a function's several names the shortest: `malloc`, and not `__libc_malloc`.
            let known = symbols.entry(address).or_insert_with(|| name.clone());
            if name.len() < known.len() {
                *known = name;
            }
        }
        Ok(Self { file: file.to_owned(), symbols })
    }

    fn address(&self, which: impl Fn(&str) -> bool) -> Result<u64, String> {
        let found = self.symbols.iter().find(|(_, name)| which(name)).map(|(address, _)| *address);
        found.ok_or_else(|| format!("{}: it has not the functions of this bench", self.file.display()))
    }

    /// The function that an address is in.
    fn name(&self, address: u64) -> String {
        self.symbols.range(..=address).next_back().map_or_else(|| "?".into(), |(_, name)| name.clone())
    }

    /// Runs it with `options` under the emulator: functions by name, with their instructions within `counted`.
    ///
    /// # Errors
    /// What kept it from running, or what is odd about what the plugin wrote.
    pub fn profile(&self, options: &[&str]) -> Result<BTreeMap<String, Function>, String> {
        let start = self.address(|name| name == "_start")?;
        let counted = self.address(|name| name.ends_with("::counted"))?;
        let temporary = |kind: &str| std::env::temp_dir().join(format!("quiver-instructions-{}.{kind}", std::process::id()));
        let (plugin, counts) = (temporary("so"), temporary("counts"));
        output(Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&plugin).arg(SOURCE))?;
        let argument = format!("{},start={start},counted={counted},out={}", plugin.display(), counts.display());
        let run = output(Command::new("qemu-aarch64").arg("-plugin").arg(argument).arg(&self.file).args(options));
        let text = std::fs::read_to_string(&counts);
        for file in [&plugin, &counts] {
            let _ = std::fs::remove_file(file);
        }
        run?;
        self.parse(&text.map_err(|error| format!("{}: {error}", counts.display()))?)
    }

    fn parse(&self, text: &str) -> Result<BTreeMap<String, Function>, String> {
        let mut functions: BTreeMap<String, Function> = BTreeMap::new();
        for line in text.lines() {
            let (kind, numbers) = line.split_once(' ').unwrap_or((line, ""));
            let numbers: Vec<u64> = numbers.split(' ').filter_map(|number| number.parse().ok()).collect();
            match (kind, &*numbers) {
                ("block", [at, count]) => functions.entry(self.name(*at)).or_default().own += count,
                ("call", [caller, callee, times, cost]) => {
                    let calls = &mut functions.entry(self.name(*caller)).or_default().calls;
                    let sum = calls.entry(self.name(*callee)).or_default();
                    *sum = (sum.0 + times, sum.1 + cost);
                }
                _ => return Err(format!("the plugin wrote: {line}")),
            }
        }
        if functions.is_empty() { Err("the program never came to what is counted".into()) } else { Ok(functions) }
    }
}
