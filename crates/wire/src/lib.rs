//! Header views, checksums and endian types; knows bytes only
#![forbid(unsafe_code)]
