//! All that speaks Redis. Reads only; what writes will be in `live::remove`.

mod endpoint;

pub use endpoint::{Address, Credentials, Endpoint, Secret, Timeouts, TlsOptions};
