//! `bigkeys completions` and `bigkeys man`: made from the tree of flags, so never out of date.

use std::io;

use clap::CommandFactory;

use crate::cli::args::{Cli, CompletionsArgs};
use crate::cli::console;
use crate::cli::error::CommandError;
use crate::cli::exit::Exit;

/// Prints a completion script.
pub(in crate::cli) fn completions(args: &CompletionsArgs) -> Result<Exit, CommandError> {
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bigkeys", &mut script);
    console::print(&script)
}

/// Prints the manual: one page with the commands and their flags.
pub(in crate::cli) fn man() -> Result<Exit, CommandError> {
    let mut pages = Vec::new();
    render_man(&mut pages).expect("writing to memory never fails");
    console::print(&pages)
}

fn render_man(pages: &mut Vec<u8>) -> io::Result<()> {
    let mut cli = Cli::command();
    cli.build();
    let commands: Vec<clap::Command> = cli.get_subcommands().cloned().collect();
    let main = clap_mangen::Man::new(cli);
    main.render_title(pages)?;
    main.render_name_section(pages)?;
    main.render_synopsis_section(pages)?;
    main.render_description_section(pages)?;
    for command in commands {
        let name = command.get_name();
        pages.extend_from_slice(format!(".SH BIGKEYS {}\n", name.to_uppercase()).as_bytes());
        // Not the crate's synopsis: with fifty flags it is a wall.
        let arguments = if command.get_positionals().next().is_some() { "ARGUMENT" } else { "[OPTIONS]" };
        pages.extend_from_slice(format!("\\fBbigkeys {name}\\fR {arguments}\n.PP\n").as_bytes());
        let page = clap_mangen::Man::new(command);
        let mut body = Vec::new();
        page.render_description_section(&mut body)?;
        page.render_options_section(&mut body)?;
        // Sections of a command are subsections of the one page.
        pages.extend_from_slice(String::from_utf8_lossy(&body).replace(".SH ", ".SS ").as_bytes());
    }
    main.render_extra_section(pages)?;
    main.render_version_section(pages)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_manual_holds_each_command_and_its_flags() {
        let mut pages = Vec::new();
        render_man(&mut pages).expect("it is memory");
        let text = String::from_utf8(pages).expect("it is text");
        for part in [".TH bigkeys", ".SH BIGKEYS SCAN", "rate", "print\\-acl", "abort\\-latency"] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn each_shell_gets_a_script() {
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "bigkeys", &mut script);
            assert!(String::from_utf8_lossy(&script).contains("max-latency"), "{shell}");
        }
    }
}
