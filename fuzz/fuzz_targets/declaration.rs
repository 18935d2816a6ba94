//! Any text as the declaration of an operation of a plugin, and as its command and its JSON request: no panic, and the command of a
//! request makes that request again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quiver_command::grammar::Args;
use quiver_command::request::Dynamic;

fuzz_target!(|text: &str| {
    let mut parts = text.split('\n');
    let (declaration, line) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let json = parts.next().unwrap_or_default();
    let declared = match Dynamic::read(declaration) {
        Ok(declared) => declared,
        Err(error) => {
            assert!(!error.is_empty());
            return;
        }
    };
    for argument in declared.arguments {
        let _ = argument.help();
    }
    if let Ok(request) = declared.parse(&mut Args::new(line)) {
        assert_eq!(declared.of_json(serde_json::Value::Object(request.clone())).as_ref(), Ok(&request));
        let _ = declared.command(&request);
    }
    if let Ok(json) = serde_json::from_str(json)
        && let Ok(request) = declared.of_json(json)
    {
        let _ = declared.command(&request);
    }
});
