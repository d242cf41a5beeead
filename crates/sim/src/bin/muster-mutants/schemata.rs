//! Adds a switch to a source file for each of its guards: `if disabled { mutant } else { guard }`. One build is enough
//! for all mutants, and an environment variable selects one.

use anyhow::{Result, bail};

use crate::list::{Guard, LIST};

/// Names the disabled guards, separated by commas.
pub(crate) const VARIABLE: &str = "MUSTER_WITHOUT";

/// Added to the copy of `muster-core`, which all crates depend on.
pub(crate) const SWITCH: &str = r#"
/// Whether a guard is taken away.
pub fn is_without(guard: &str) -> bool {
    static WITHOUT: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("MUSTER_WITHOUT").unwrap_or_default());
    !WITHOUT.is_empty() && WITHOUT.split(',').any(|off| off == guard)
}
"#;

/// The text of a file with a switch for each guard. `within`: the path of the crate with the switch.
pub(crate) fn switched(text: &str, guards: &[&Guard], within: &str) -> Result<String> {
    let mut places = Vec::new();
    for guard in guards {
        let mut found = text.match_indices(guard.find.as_str()).map(|(at, _)| at);
        match (found.next(), found.next()) {
            (Some(at), None) => places.push((at, *guard)),
            (Some(_), Some(_)) => bail!("{}: {} holds this more than once:\n  {}", guard.name, guard.file, guard.find),
            (None, _) => bail!(
                "{}: {} does not hold this any more:\n  {}\nlook where the guard is now, and write that into {LIST}",
                guard.name,
                guard.file,
                guard.find
            ),
        }
    }
    places.sort_by_key(|(at, _)| *at);
    let mut switched = String::with_capacity(text.len());
    let mut end = 0;
    for (at, Guard { name, file, find, becomes, .. }) in places {
        if at < end {
            bail!("{name}: another guard of {file} stands in the same place");
        }
        switched.push_str(&text[end..at]);
        switched.push_str(&format!("(if {within}::is_without(\"{name}\") {{ {becomes} }} else {{ {find} }})"));
        end = at + find.len();
    }
    switched.push_str(&text[end..]);
    Ok(switched)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(name: &str, find: &str, becomes: &str) -> Guard {
        let text = format!(
            "[[guard]]\nname = '{name}'\nkeeps = 'x'\nfile = 'f.rs'\nfind = '{find}'\nbecomes = '{becomes}'\nscript = 's'"
        );
        crate::list::read(&text, &[]).unwrap().remove(0)
    }

    #[test]
    fn each_guard_has_its_own_switch() {
        let (soak, full) = (guard("soak", "later(at, soak)", "at"), guard("full", "used >= max", "false"));
        let text = "if used >= max { return later(at, soak); }";
        assert_eq!(
            switched(text, &[&soak, &full], "crate").unwrap(),
            "if (if crate::is_without(\"full\") { false } else { used >= max }) { \
             return (if crate::is_without(\"soak\") { at } else { later(at, soak) }); }"
        );
    }

    #[test]
    fn moved_guard_is_reported() {
        let full = guard("full", "used >= max", "false");
        let said = |text: &str, guards: &[&Guard]| switched(text, guards, "crate").unwrap_err().to_string();
        assert!(said("used > max", &[&full]).contains("does not hold this any more"));
        assert!(said("used >= max || used >= max", &[&full]).contains("more than once"));
        assert!(said("used >= max", &[&full, &guard("part", ">= max", ">= 1")]).contains("the same place"));
    }
}
