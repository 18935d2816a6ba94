//! A request to a program beside the router: however the bytes are cut, there is one answer or none yet, and what the handler gets is what
//! the bytes say. What the page shows or a bundle has is without secrets: masking never panics, and masks what is masked once only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_command::secrets::Masked;
use quiver_http::{BODY, Request, Response};

fuzz_target!(|data: &[u8]| {
    let handler = |request: &Request<'_>| {
        assert!(request.body.len() <= BODY && !request.path.contains('?'));
        let _ = (request.header("host"), request.header("authorization"));
        Response::text("200 OK", request.query)
    };
    let mut answered = false;
    for end in [data.len() / 2, data.len()] {
        let is_answer = quiver_http::answer(&data[..end], &handler).is_some();
        assert!(is_answer || !answered, "an answer is taken back");
        answered = is_answer;
    }
    let text = String::from_utf8_lossy(data);
    let once = Masked::default().text("", &text);
    let mut again = Masked::default();
    assert_eq!(again.text("", &once), once);
});
