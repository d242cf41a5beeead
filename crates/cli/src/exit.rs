//! What a command says by its exit code.

use std::process::ExitCode;

/// How a command ended. Scripts tell "no" from "nobody could say".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Yes, or done.
    Yes,
    /// No, or failed.
    No,
    /// The server is not there, is not up to date, or did not say what became of it.
    CannotTell,
    /// Shown, and there is something to do: for those who ask for it.
    Changes,
    /// Somebody has pressed Ctrl-C; the number is that of shells.
    Interrupted,
    /// The command was not understood; the number is that of sysexits.h.
    Usage,
}

impl Exit {
    pub fn code(self) -> u8 {
        match self {
            Exit::Yes => 0,
            Exit::No => 1,
            Exit::CannotTell => 2,
            Exit::Changes => 3,
            Exit::Usage => 64,
            Exit::Interrupted => 130,
        }
    }

    pub fn yes_if(condition: bool) -> Self {
        if condition { Exit::Yes } else { Exit::No }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}
