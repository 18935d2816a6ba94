//! Generated routing tables with the prefix lengths of real ones.
