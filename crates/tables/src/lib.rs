//! Lookup tables, timers and reclamation; knows no packets
