//! The flags of `completions`.

use clap::Args;
use clap_complete::Shell;

/// What was typed after `bigkeys completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Which shell
    #[arg(value_name = "SHELL", help_heading = "Arguments")]
    pub shell: Shell,
}
