//! Any bytes as a file of another program's: a profile that is read back and of which a trial can be made, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_tester_core::import::{capture, siitperf};
use quiver_tester_core::profile::Profile;

fuzz_target!(|bytes: &[u8]| {
    let text = std::str::from_utf8(bytes).ok();
    if let Err(error) = siitperf::stateful("f", text.unwrap_or_default()) {
        let error = error.to_string();
        assert!(error.starts_with('f') && !error.contains('\n'), "{error:?}");
    }
    for result in [capture::profile("f", bytes, 100), siitperf::profile("f", text.unwrap_or_default())] {
        match result {
            Ok(profile) => {
                let read = Profile::of_yaml("f", &profile);
                assert!(read.is_ok(), "{read:?}\n{profile}");
            }
            Err(error) => {
                let error = error.to_string();
                assert!(error.starts_with('f') && !error.contains('\n'), "{error:?}");
            }
        }
    }
});
