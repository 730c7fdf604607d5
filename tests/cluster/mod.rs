//! Several servers that belong together: clusters, Sentinel groups, primaries with replicas.

mod delete;
mod groups;
mod laboratory;
mod scan;
