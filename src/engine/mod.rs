//! The library: knows keys, never a terminal.
