//! Who makes a change, as the design's history shows it.

use crate::variables;

/// The user on this machine, such as `jo@build7`, unless it is said who it is. It is a word, not a proof.
pub(crate) fn author() -> String {
    if let Some(author) = std::env::var(variables::AUTHOR).ok().filter(|author| !author.is_empty()) {
        return author;
    }
    let user = [variables::USER, variables::LOGIN_NAME].iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}
