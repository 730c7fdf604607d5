//! The bundled server: a Redis in Rust that stalls like the real one.

pub mod value;
