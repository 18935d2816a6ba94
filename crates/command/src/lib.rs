//! Command language and typed-operation machinery; knows no packets
#![forbid(unsafe_code)]
