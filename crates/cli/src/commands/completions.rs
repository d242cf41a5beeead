//! `muster completions`: prints completion scripts for shells.
//!
//! The scripts ask [`super::complete`] for names that the server knows, and complete all other words by themselves. The
//! dynamic engine of clap_complete is an unstable feature, and would run the parser's code in each shell's own way.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Exit, Failure};
use crate::output::Terminal;

/// Print the completion script for a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  muster completions bash > ~/.local/share/bash-completion/completions/muster
  muster completions zsh > ~/.zfunc/_muster
  muster completions fish > ~/.config/fish/completions/muster.fish")]
pub struct Args {
    /// Shell
    shell: Shell,
}

pub(super) fn run(args: &Args, terminal: &mut Terminal) -> Result<Exit, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "muster", &mut text);
    terminal.out.line(with_names(args.shell, &String::from_utf8_lossy(&text)).trim_end());
    Ok(Exit::Yes)
}

/// Functions of Bash around those of the script.
const BASH: &str = r#"
_muster_with_names() {
    local names IFS=$'\n'
    names="$("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)"
    if [[ -n "$names" ]]; then
        COMPREPLY=($names)
    else
        IFS=$' \t\n' _muster "$@"
    fi
}
complete -F _muster_with_names -o bashdefault -o default muster
"#;

const ZSH: &str = r#"
_muster() {
    local -a names
    names=("${(@f)$(muster __complete "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    if [[ -n "$names[1]" ]]; then
        compadd -a names
    else
        _muster_words "$@"
    fi
}
"#;

const FISH: &str = r#"
function __fish_muster_names
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    muster __complete $words[2..-1] "$current" 2> /dev/null
end
complete -c muster -a '(__fish_muster_names)'
"#;

/// Adds the names of the server to the script of a shell. Scripts of other shells stay as they are.
fn with_names(shell: Shell, script: &str) -> String {
    match shell {
        Shell::Bash => format!("{script}{BASH}"),
        // The function that the shell calls has the name of the file.
        Shell::Zsh => {
            let script = script.replacen("\n_muster() {", "\n_muster_words() {", 1);
            let at = script.rfind("if [ \"$funcstack[1]\"").unwrap_or(script.len());
            let (functions, start) = script.split_at(at);
            format!("{functions}{ZSH}\n{start}")
        }
        Shell::Fish => format!("{script}{FISH}"),
        Shell::Elvish | Shell::PowerShell | _ => script.to_owned(),
    }
}
