//! Packet memory: regions, buffer indices, per-worker caches
