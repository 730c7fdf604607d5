//! The flags of `serve`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

/// What was typed after `bigkeys serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Configuration file, as redis-server takes it
    ///
    /// A parameter a line, as in redis.conf. What the bundled server does not have is an error that names
    /// the line. It starts from the file that `dir` and `dbfilename` name, if it is there; other flags
    /// override the file.
    #[arg(long, value_name = "FILE", help_heading = "Configuration")]
    pub config: Option<PathBuf>,

    /// Address to listen on [default: 127.0.0.1]
    ///
    /// Other than loopback it needs --password-file: the server is a sandbox, and anybody could fill it.
    #[arg(long, value_name = "ADDRESS", help_heading = "Listening")]
    pub bind: Option<IpAddr>,

    /// Port to listen on [default: 6379]
    ///
    /// 0 takes a free one, and says which.
    #[arg(short = 'p', long, value_name = "PORT", help_heading = "Listening")]
    pub port: Option<u16>,

    /// File that holds the password clients must give
    ///
    /// It holds the password and nothing else; one newline at its end is dropped.
    #[arg(long, value_name = "FILE", help_heading = "Listening")]
    pub password_file: Option<PathBuf>,

    /// Folder that SAVE and BGSAVE write to [default: .]
    #[arg(long, value_name = "DIR", help_heading = "Data")]
    pub dir: Option<PathBuf>,

    /// RDB file to start from, to rehearse on a copy of real data
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub load: Option<PathBuf>,
}
