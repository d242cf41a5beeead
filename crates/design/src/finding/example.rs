//! An example of each finding, to be shown with its explanation.

use super::Code;

/// All examples. A test makes this file of `examples/findings/` and holds it against them: it is here so that the crate
/// can be built from its own directory alone, and so that a new code needs no file to be compiled.
const EXAMPLES: &str = include_str!("../../explanations/examples.md");

/// Files that trigger a finding, what is said about them, and a near miss: Markdown, to stand below
/// [`Code::explanation`]. None if no file alone triggers it.
pub fn example(code: Code) -> Option<&'static str> {
    let (_, from) = EXAMPLES.split_once(&mark(code))?;
    Some(from.split("\n<!-- M").next()?.trim())
}

/// What stands above the example of a code.
fn mark(code: Code) -> String {
    format!("<!-- {code} -->\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_found_by_its_code() {
        let of_keys = example(Code::DuplicateKey).unwrap_or_default();
        assert!(of_keys.starts_with("## Example") && of_keys.contains("error[M0006]"), "{of_keys}");
        assert!(!of_keys.contains("error[M0007]") && !of_keys.contains("<!--"), "{of_keys}");
        assert_eq!(example(Code::TooManyFindings), None);
    }
}
