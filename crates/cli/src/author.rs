//! Who makes a change, as the design's history shows it.

use crate::variables;

/// The user on this machine, such as `jo@build7`. It is what the user says, not a proof.
pub(crate) fn author() -> String {
    let user = [variables::USER, variables::LOGIN_NAME].iter().find_map(|name| std::env::var(name).ok());
    let user = user.filter(|user| !user.is_empty());
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname();
    format!("{user}@{}", host.nodename().to_string_lossy())
}
