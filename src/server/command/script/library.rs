//! What the libraries of scripts share: errors that say where in the script they were raised.

use mlua::Lua;

use super::vm::user_line;

/// An error of a library function. A script that catches it sees this text.
#[derive(Debug)]
pub(super) struct LibraryError(String);

impl std::fmt::Display for LibraryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LibraryError {}

/// Makes an error with the place in front, as Lua does.
pub(super) fn error(lua: &Lua, text: &str) -> mlua::Error {
    let place = user_line(lua).map(|line| format!("user_script:{line}: ")).unwrap_or_default();
    mlua::Error::external(LibraryError(format!("{place}{text}")))
}
