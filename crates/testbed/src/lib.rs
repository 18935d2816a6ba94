//! Test hosts in anonymous network namespaces; development only
