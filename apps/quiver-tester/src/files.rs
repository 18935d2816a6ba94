//! Commands that need no ports: profiles from other programs' files, and the frames of a profile as a capture.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use quiver_tester_core::profile::{Profile, Side};
use quiver_tester_core::trial::dry::{DryPort, DryRun};
use quiver_wire::pcapfile::{LinkType, Writer};

use crate::Failure;
use crate::options::{FramesOptions, ImportOptions};

/// Writes the profile of a file.
pub fn import(options: &ImportOptions) -> Result<(), Failure> {
    let text = quiver_tester_core::import::import(&options.file, options.packets, options.background)?;
    match &options.out {
        Some(file) => std::fs::write(file, text).map_err(|e| Failure::File(file.display().to_string(), e)),
        None => Ok(io::stdout().lock().write_all(text.as_bytes())?),
    }
}

/// Writes what a trial would send.
pub fn frames(options: &FramesOptions) -> Result<(), Failure> {
    let plan = options.plan(Profile::load(&options.profile)?);
    let side = if options.from == "left" { Side::Left } else { Side::Right };
    let port = DryPort { src: options.mac, dst: options.dst_mac, ethernet: !options.ip };
    let run = DryRun::new(&plan, side, port)?;
    let failed = |error| Failure::File(options.out.display().to_string(), error);
    let link = if options.ip { LinkType::RAW_IP } else { LinkType::ETHERNET };
    let mut out = Writer::new(BufWriter::new(File::create(&options.out).map_err(failed)?), link).map_err(failed)?;
    for (time, frame) in run.take(options.count) {
        out.write(time, &frame, frame.len()).map_err(failed)?;
    }
    out.finish().and_then(|mut file| file.flush()).map_err(failed)
}
