//! Traffic that other programs describe, as profiles of ours.
//!
//! | module | what it reads |
//! |---|---|
//! | [`siitperf`] | the configuration file of siitperf, as it stands |
//! | [`capture`] | the header stacks of a capture file |
//!
//! Each gives the text of a profile, with what does not belong into one as comments; the text has been read back before it is given.

pub mod capture;
pub mod siitperf;
mod text;

use std::path::Path;

use quiver_wire::pcapfile::PcapError;

use crate::profile::{Profile, ProfileError};
use siitperf::Background;

/// Largest file that is read, bytes.
const LARGEST: u64 = 1 << 30;
/// First bytes of capture files: classic in both byte orders and both clock units, and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// Why a file gives no profile: one line.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be read.
    #[error("{file}: {error}")]
    File {
        /// The file.
        file: String,
        /// What the system said.
        error: String,
    },
    /// A line of a configuration file.
    #[error("{file}, line {line}: {error}")]
    Line {
        /// The file.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// What is wrong with it.
        error: String,
    },
    /// The whole of it.
    #[error("{file}: {error}")]
    Content {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: String,
    },
    /// A capture file.
    #[error("{file}: {error}")]
    Capture {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: PcapError,
    },
    /// What it says is nothing that a profile can say.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Reads the stateful test of a `siitperf.conf`.
///
/// # Errors
/// It cannot be read, or says something that cannot be measured here.
pub fn stateful(file: &Path) -> Result<siitperf::StatefulTest, ImportError> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|e| ImportError::File { file: name.clone(), error: e.to_string() })?;
    siitperf::stateful(&name, &text)
}

/// Reads a file of any of the kinds; of a capture at most so many packets, of siitperf's with this background traffic.
///
/// # Errors
/// It cannot be read, or says something that a profile cannot say.
pub fn import(file: &Path, packets: usize, background: Option<Background>) -> Result<String, ImportError> {
    let name = file.display().to_string();
    let failed = |error: String| ImportError::File { file: name.clone(), error };
    let size = std::fs::metadata(file).map_err(|e| failed(e.to_string()))?.len();
    if size > LARGEST {
        return Err(failed(format!("{size} bytes are too many: at most {LARGEST}")));
    }
    let bytes = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
    let text = if CAPTURES.iter().any(|magic| bytes.starts_with(magic)) {
        if background.is_some() {
            return Err(failed("background traffic belongs to siitperf's configurations; a capture has what it has".to_owned()));
        }
        capture::profile(&name, &bytes, packets)?
    } else {
        let text = String::from_utf8(bytes).map_err(|_| failed("neither a capture nor text".to_owned()))?;
        if text.contains("trex_stl_lib") || text.contains("trex.stl") {
            return Err(failed("a profile of TRex: `quiver-lab import-trex' reads those".to_owned()));
        }
        siitperf::profile_beside(&name, &text, background.unwrap_or_default())?
    };
    Profile::of_yaml(&name, &text)?;
    Ok(text)
}
