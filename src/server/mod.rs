//! The bundled server: a Redis in Rust that stalls like the real one.

mod clock;
mod resp;
pub mod value;

pub use clock::{Clock, ManualClock, SystemClock};
