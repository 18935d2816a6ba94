//! Interfaces, Ethernet, L2, IPv4, IPv6, ARP, ND, ICMP, FIB, adjacencies, packet generator
#![forbid(unsafe_code)]
