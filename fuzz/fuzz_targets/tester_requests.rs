//! Any text as a line to the tester's server: a request of which a trial can be planned, or an error of one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_tester_core::request::Request;
use quiver_tester_core::tcp;
use quiver_tester_core::trial::plain_profile;

fuzz_target!(|line: &str| {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(line) else { return };
    match Request::of(&value) {
        Ok(Request::Trial(trial)) => {
            let plan = trial.plan(plain_profile(64));
            assert!(!plan.duration.is_zero() && (60..=9212).contains(&plan.max_frame()));
        }
        Ok(Request::Stateful(request)) => match request.plan(None) {
            Ok((connections, _, course)) => {
                assert!(connections.total() >= 1 && !course.duration.is_zero());
                connections.tuple(connections.total() - 1);
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error:?}"),
        },
        // Its plan would read a file that it names; a document is a profile or an error of one line.
        Ok(Request::Tcp(_)) => {
            if let Err(error) = tcp::Profile::of_document("f", value["profile"].clone()) {
                assert!(!error.to_string().contains('\n'), "{error:?}");
            }
        }
        Ok(Request::Ports(ports)) => ports.iter().for_each(|port| assert!(!port.to_string().is_empty())),
        Ok(_) => {}
        Err(error) => assert!(!error.is_empty() && !error.contains('\n'), "{error:?}"),
    }
});
