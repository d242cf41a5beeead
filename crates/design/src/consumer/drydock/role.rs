//! What a node of Drydock's is for: Drydock has no roles.

use muster_core::names::Role;

use super::draft::{Draft, made};
use super::envelope::Envelope;
use crate::span::Span;
use crate::yaml::Node;

/// The owner data that says it.
const ROLE: &str = "role";
/// A node of which nothing at all is known.
const NAMELESS: &str = "node";

/// Gives a node its role: what its owner data say; else, below everything that an environment file or another source
/// says, a word made of its profile's name or its own.
pub(super) fn give(draft: &mut Draft, envelope: &Envelope<'_>) {
    let said = draft.get("owner_data").and_then(|entry| entry.value.get(ROLE)).filter(|role| !role.is_null()).cloned();
    if let Some(role) = said {
        draft.entries.push(made(ROLE, role));
        return;
    }
    let profile = draft.extends.iter().flatten().next().map(|parent| (&*parent.name, parent.span));
    let own = envelope.name.as_deref().map(|name| (name, envelope.name_at));
    let word = |(name, span): (&str, Span)| Some((word(name)?, span));
    let (role, span) =
        profile.and_then(word).or_else(|| own.and_then(word)).unwrap_or((NAMELESS.into(), envelope.name_at));
    draft.defaults.push(made(ROLE, Node::from_text(role, span)));
}

/// A legal role that is as near to a name as can be: `CP_r720` becomes `cp-r`.
fn word(name: &str) -> Option<String> {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let word: String = name.chars().take(40).map(letter).collect();
    let word = word.trim_matches(|c: char| !c.is_ascii_lowercase());
    Role::new(word).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn names_become_roles() {
        let table = [
            ("compute", Some("compute")),
            ("CP_r720", Some("cp-r")),
            ("controller01", Some("controller")),
            ("r1-compute-07", Some("r1-compute")),
            ("2nd.rack", Some("nd-rack")),
            ("42", None),
            ("ä", None),
            ("", None),
        ];
        for (name, role) in table {
            assert_eq!(word(name).as_deref(), role, "{name:?}");
        }
        assert_eq!(word(&"a".repeat(100)).map(|role| role.len()), Some(40));
    }
}
